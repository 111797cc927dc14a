// nn.Modules as a tree: amounts are summed up their paths, and neighbours that differ only in their
// number ("layers.0" to "layers.23") become one row where they are alike.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tidemark {

// "a", "a.b" and "a.b.c" of "a.b.c". What is read from files must not nest without end: a long rest
// stays whole.
std::vector<std::string_view> module_prefixes(std::string_view path);

// What they mean is up to the caller.
using ModuleAmounts = std::array<uint64_t, 5>;

struct ModulePart {
  std::string path;  // empty: of no nn.Module
  std::string class_name;
  ModuleAmounts amounts{};  // of the nn.Module alone
};

struct ModuleRow {
  std::string path;                  // "layers.0-23.mlp"
  std::string class_name;            // empty: not known
  std::vector<std::string> modules;  // the paths that it stands for
  uint32_t depth = 0;
  size_t end = 0;           // one past the last row inside it
  ModuleAmounts amounts{};  // with all that is inside, of all its modules
  uint64_t peak = 0;        // of one of its modules; set by the caller
};

// Whether two neighbours become one row.
using ModulesAlike = bool(const ModuleAmounts&, const ModuleAmounts&);

// No amount differs by more than 5 % of what the larger one has in all.
bool about_equal(const ModuleAmounts& a, const ModuleAmounts& b);

// A part without amounts has no row; it only names a class. Parents before their children;
// neighbours by what they hold, the most first, but numbered ones in the order of their numbers. A
// parent that has nothing of its own and one child shares its row.
std::vector<ModuleRow> module_tree(std::span<const ModulePart> parts,
                                   ModulesAlike& alike = about_equal);

// The rows that tell most in about `most` lines: the heaviest are opened first. `weights` by row;
// rows of less than 0.5 % of `whole` are left out. Ascending.
std::vector<size_t> main_rows(std::span<const ModuleRow> rows, std::span<const uint64_t> weights,
                              uint64_t whole, size_t most);

// The last part of a row's path, as seen from the row that contains it.
std::string_view name_in_parent(std::span<const ModuleRow> rows, size_t row);

// "denselayer12" is number 12 of "denselayer", "3" number 3 of "". False: it ends in no number.
struct NumberedName {
  std::string_view stem;
  uint64_t number = 0;
};
bool split_number(std::string_view name, NumberedName& out);

}  // namespace tidemark
