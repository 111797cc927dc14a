#include "analysis/names/source_lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

namespace tidemark {

namespace {

struct EndDwarf {
  void operator()(Dwarf* dwarf) const { dwarf_end(dwarf); }
};

struct UnitRange {
  uint64_t begin;
  uint64_t end;
  Dwarf_Off unit;
};

class DwarfLines final : public SourceLines {
 public:
  explicit DwarfLines(std::unique_ptr<Dwarf, EndDwarf> dwarf) : dwarf_(std::move(dwarf)) {}

  bool find(uint64_t address, SourceLine& out) override {
    Dwarf_Die unit;
    if (!find_unit(address, unit)) return false;
    Dwarf_Line* const line = dwarf_getsrc_die(&unit, address);
    int number = 0;
    const char* const file = line == nullptr ? nullptr : dwarf_linesrc(line, nullptr, nullptr);
    if (file == nullptr || dwarf_lineno(line, &number) != 0) return false;
    out.file = file;
    out.line = number;
    out.inlined = inlined_at(unit, address);
    return true;
  }

 private:
  bool find_unit(uint64_t address, Dwarf_Die& unit) {
    if (dwarf_addrdie(dwarf_.get(), address, &unit) != nullptr) return true;
    // Some compilers write no table of address ranges: then read them from the units, once.
    if (!std::exchange(ranges_known_, true)) collect_ranges();
    const auto after =
        std::upper_bound(ranges_.begin(), ranges_.end(), address,
                         [](uint64_t value, const UnitRange& r) { return value < r.begin; });
    if (after == ranges_.begin() || address >= (after - 1)->end) return false;
    return dwarf_offdie(dwarf_.get(), (after - 1)->unit, &unit) != nullptr;
  }

  void collect_ranges() {
    Dwarf_CU* unit = nullptr;
    Dwarf_Die die;
    while (dwarf_get_units(dwarf_.get(), unit, &unit, nullptr, nullptr, &die, nullptr) == 0) {
      Dwarf_Addr base = 0;
      Dwarf_Addr begin = 0;
      Dwarf_Addr end = 0;
      for (ptrdiff_t at = 0; (at = dwarf_ranges(&die, at, &base, &begin, &end)) > 0;) {
        ranges_.push_back({begin, end, dwarf_dieoffset(&die)});
      }
    }
    std::sort(ranges_.begin(), ranges_.end(),
              [](const UnitRange& a, const UnitRange& b) { return a.begin < b.begin; });
  }

  static std::string inlined_at(Dwarf_Die& unit, uint64_t address) {
    Dwarf_Die* scopes = nullptr;
    const int count = dwarf_getscopes(&unit, address, &scopes);
    std::string name;
    for (int i = 0; i < count; ++i) {
      const int tag = dwarf_tag(&scopes[i]);
      if (tag == DW_TAG_subprogram) break;
      if (tag != DW_TAG_inlined_subroutine) continue;
      name = name_of(scopes[i]);
      break;
    }
    std::free(scopes);
    return name;
  }

  static std::string name_of(Dwarf_Die& inlined) {
    Dwarf_Attribute attribute;
    if (dwarf_attr_integrate(&inlined, DW_AT_linkage_name, &attribute) != nullptr) {
      if (const char* const name = dwarf_formstring(&attribute)) return name;
    }
    // A function that is never called out of line has no linkage name: build it from its scopes.
    Dwarf_Die die = inlined;
    for (const unsigned step : {DW_AT_abstract_origin, DW_AT_specification}) {
      Dwarf_Die target;
      if (dwarf_attr(&die, step, &attribute) != nullptr &&
          dwarf_formref_die(&attribute, &target) != nullptr) {
        die = target;
      }
    }
    return scopes_of(die) + text_or_empty(dwarf_diename(&die));
  }

  // "space::Class::"
  static std::string scopes_of(Dwarf_Die& die) {
    Dwarf_Die* scopes = nullptr;
    const int count = dwarf_getscopes_die(&die, &scopes);
    std::string text;
    for (int i = 1; i < count; ++i) {
      const int tag = dwarf_tag(&scopes[i]);
      const char* const name = dwarf_diename(&scopes[i]);
      if (name == nullptr ||
          (tag != DW_TAG_namespace && tag != DW_TAG_class_type && tag != DW_TAG_structure_type)) {
        continue;
      }
      text.insert(0, std::string(name) + "::");
    }
    std::free(scopes);
    return text;
  }

  static std::string text_or_empty(const char* text) { return text == nullptr ? "" : text; }

  std::unique_ptr<Dwarf, EndDwarf> dwarf_;
  std::vector<UnitRange> ranges_;
  bool ranges_known_ = false;
};

}  // namespace

std::unique_ptr<SourceLines> SourceLines::open(int fd) {
  std::unique_ptr<Dwarf, EndDwarf> dwarf(dwarf_begin(fd, DWARF_C_READ));
  if (dwarf == nullptr) return nullptr;
  return std::make_unique<DwarfLines>(std::move(dwarf));
}

bool reads_source_lines() {
  return true;
}

}  // namespace tidemark
