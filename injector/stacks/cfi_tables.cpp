// Finds the rules of the frame at a program counter: .eh_frame_hdr, CIE, FDE and their programs.
#include "injector/stacks/cfi.h"
#include "injector/stacks/cfi_reader.h"

namespace tidemark::injector {
namespace {

constexpr uint8_t kOmitted = 0xff;
constexpr uint8_t kDataRelativeInt32 = 0x3b;  // DW_EH_PE_datarel | DW_EH_PE_sdata4
constexpr uint64_t kExtendedLength = 0xffffffff;

// What a CIE defines for the FDEs that refer to it.
struct Cie {
  uint64_t code_align = 1;
  int64_t data_align = 1;
  uint64_t return_register = kReturnRegister;
  uint8_t pointer_coding = 0;
  bool has_augmentation = false;
  bool signal_frame = false;
  CfiReader program;
};

struct Fde {
  Cie cie;
  uint64_t pc_begin = 0;
  CfiReader program;
};

CfiReader reader_at(const UnwindTables& tables, uintptr_t address) {
  return {reinterpret_cast<const uint8_t*>(address), tables.segment_begin, tables.segment_end};
}

// The address of the FDE that covers `pc`, from the binary search table; 0: none.
uintptr_t search_header(const UnwindTables& tables, uintptr_t pc) {
  CfiReader header(tables.header, tables.segment_begin, tables.segment_end);
  const uintptr_t base = header.address();
  const auto version = header.fixed<uint8_t>();
  const auto frame_coding = header.fixed<uint8_t>();
  const auto count_coding = header.fixed<uint8_t>();
  const auto table_coding = header.fixed<uint8_t>();
  if (version != 1 || count_coding == kOmitted || table_coding != kDataRelativeInt32) return 0;
  header.encoded(frame_coding, base);
  const uint64_t count = header.encoded(count_coding, base);
  struct Entry {
    int32_t start;
    int32_t fde;
  };
  const CfiReader table = header.take(count > (1u << 28) ? ~uint64_t{0} : count * sizeof(Entry));
  if (!table.ok() || count == 0) return 0;

  auto entry = [&](uint64_t index) {
    Entry e;
    std::memcpy(&e, table.position() + index * sizeof(Entry), sizeof(e));
    return e;
  };
  auto address = [&](int32_t relative) { return base + static_cast<uintptr_t>(int64_t{relative}); };
  if (pc < address(entry(0).start)) return 0;
  uint64_t low = 0;
  uint64_t high = count;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (address(entry(middle).start) <= pc ? low : high) = middle;
  }
  return address(entry(low).fde);
}

bool read_augmentation(const char* letters, CfiReader data, uintptr_t data_base, Cie& cie) {
  for (const char* letter = letters; *letter != '\0'; ++letter) {
    switch (*letter) {
      case 'L':
        data.fixed<uint8_t>();
        break;
      case 'P': {
        const auto coding = data.fixed<uint8_t>();
        data.encoded(coding & 0x7f, data_base);
        break;
      }
      case 'R':
        cie.pointer_coding = data.fixed<uint8_t>();
        break;
      case 'S':
        cie.signal_frame = true;
        break;
      case 'B':  // aarch64: signed with the B key
      case 'G':  // aarch64: memory tagging
        break;
      default:
        return data.ok();  // unknown letters come last, their data is skipped by length
    }
  }
  return data.ok();
}

bool read_cie(const UnwindTables& tables, uintptr_t address, Cie& cie) {
  CfiReader start = reader_at(tables, address);
  const auto length = start.fixed<uint32_t>();
  if (length == 0 || length == kExtendedLength) return false;
  CfiReader body = start.take(length);
  if (body.fixed<uint32_t>() != 0) return false;  // an FDE, not a CIE
  const auto version = body.fixed<uint8_t>();
  if (version != 1 && version != 3) return false;
  const char* letters = reinterpret_cast<const char*>(body.position());
  while (body.ok() && body.fixed<char>() != '\0') {
  }
  if (!body.ok()) return false;
  cie.code_align = body.uleb();
  cie.data_align = body.sleb();
  cie.return_register = version == 1 ? body.fixed<uint8_t>() : body.uleb();
  if (*letters == 'z') {
    cie.has_augmentation = true;
    const CfiReader data = body.take(body.uleb());
    if (!read_augmentation(letters + 1, data, reinterpret_cast<uintptr_t>(tables.header), cie)) {
      return false;
    }
  } else if (*letters != '\0') {
    return false;  // the "eh" of GCC 2
  }
  cie.program = body;
  return body.ok() && cie.return_register == kReturnRegister;
}

bool read_fde(const UnwindTables& tables, uintptr_t address, uintptr_t pc, Fde& fde) {
  CfiReader start = reader_at(tables, address);
  const auto length = start.fixed<uint32_t>();
  if (length == 0 || length == kExtendedLength) return false;
  CfiReader body = start.take(length);
  const uintptr_t here = body.address();
  const auto cie_distance = body.fixed<uint32_t>();
  if (!body.ok() || cie_distance == 0 || !read_cie(tables, here - cie_distance, fde.cie)) {
    return false;
  }
  const auto data_base = reinterpret_cast<uintptr_t>(tables.header);
  fde.pc_begin = body.encoded(fde.cie.pointer_coding, data_base);
  const uint64_t range = body.encoded(fde.cie.pointer_coding & 0x0f, data_base);
  if (!body.ok() || pc < fde.pc_begin || pc - fde.pc_begin >= range) return false;
  if (fde.cie.has_augmentation) body.skip(body.uleb());
  fde.program = body;
  return body.ok();
}

// Runs the programs of CIE and FDE up to the program counter.
class RuleProgram {
 public:
  RuleProgram(const Fde& fde, uintptr_t pc, FrameRules& rules)
      : fde_(fde), pc_(pc), location_(fde.pc_begin), rules_(rules) {}

  bool run() {
    if (!execute(fde_.cie.program)) return false;
    initial_ = rules_;
    return execute(fde_.program);
  }

 private:
  bool execute(CfiReader program) {
    while (!program.at_end()) {
      if (location_ > pc_) return true;
      const auto opcode = program.fixed<uint8_t>();
      if (!instruction(opcode, program) || !program.ok()) return false;
    }
    return program.ok();
  }

  bool instruction(uint8_t opcode, CfiReader& program) {
    const uint8_t low = opcode & 0x3f;
    switch (opcode & 0xc0) {
      case 0x40:
        advance(low);
        return true;
      case 0x80:
        set(low, RuleKind::kAtCfa, factored(program.uleb()));
        return true;
      case 0xc0:
        restore(low);
        return true;
      default:
        return extended_instruction(opcode, program);
    }
  }

  bool extended_instruction(uint8_t opcode, CfiReader& program) {
    switch (opcode) {
      case 0x00:
        return true;  // nop
      case 0x01:
        location_ = program.encoded(fde_.cie.pointer_coding, 0);
        return true;
      case 0x02:
        advance(program.fixed<uint8_t>());
        return true;
      case 0x03:
        advance(program.fixed<uint16_t>());
        return true;
      case 0x04:
        advance(program.fixed<uint32_t>());
        return true;
      case 0x06:
        restore(program.uleb());
        return true;
      case 0x0a:
        return push();
      case 0x0b:
        return pop();
      case 0x2d:  // DW_CFA_AARCH64_negate_ra_state: signatures are always stripped
        return true;
      case 0x2e:
        program.uleb();
        return true;  // DW_CFA_GNU_args_size
      case 0x0c:
      case 0x0d:
      case 0x0e:
      case 0x0f:
      case 0x12:
      case 0x13:
        return cfa_instruction(opcode, program);
      default:
        return register_instruction(opcode, program);
    }
  }

  bool cfa_instruction(uint8_t opcode, CfiReader& program) {
    Rule& cfa = rules_.cfa;
    if (opcode == 0x0f) {
      cfa = {RuleKind::kExpressionValue, 0, take_expression(program)};
      return true;
    }
    if (opcode == 0x0c || opcode == 0x0d || opcode == 0x12) {
      const uint64_t number = program.uleb();
      if (number >= kRegisterCount) return false;
      rules_.cfa_register = static_cast<uint32_t>(number);
    }
    if (opcode == 0x0c || opcode == 0x0e) cfa.value = static_cast<int32_t>(program.uleb());
    if (opcode == 0x12 || opcode == 0x13) {
      cfa.value = static_cast<int32_t>(program.sleb() * fde_.cie.data_align);
    }
    cfa.kind = RuleKind::kRegister;
    return true;
  }

  bool register_instruction(uint8_t opcode, CfiReader& program) {
    const uint64_t number = program.uleb();
    switch (opcode) {
      case 0x05:
        set(number, RuleKind::kAtCfa, factored(program.uleb()));
        return true;
      case 0x07:
        set(number, RuleKind::kUndefined, 0);
        return true;
      case 0x08:
        set(number, RuleKind::kSame, 0);
        return true;
      case 0x09: {
        const uint64_t other = program.uleb();
        if (other >= kRegisterCount) return false;
        set(number, RuleKind::kRegister, static_cast<int32_t>(other));
        return true;
      }
      case 0x10:
        set_expression(number, RuleKind::kAtExpression, program);
        return true;
      case 0x11:
        set(number, RuleKind::kAtCfa, factored(program.sleb()));
        return true;
      case 0x14:
        set(number, RuleKind::kCfaPlus, factored(program.uleb()));
        return true;
      case 0x15:
        set(number, RuleKind::kCfaPlus, factored(program.sleb()));
        return true;
      case 0x16:
        set_expression(number, RuleKind::kExpressionValue, program);
        return true;
      case 0x2f:  // DW_CFA_GNU_negative_offset_extended
        set(number, RuleKind::kAtCfa, -factored(program.uleb()));
        return true;
      default:
        return false;
    }
  }

  void advance(uint64_t units) { location_ += units * fde_.cie.code_align; }

  template <typename T>
  int32_t factored(T value) const {
    return static_cast<int32_t>(static_cast<int64_t>(value) * fde_.cie.data_align);
  }

  // Other registers (vectors, the signing state) do not affect the walk.
  void set(uint64_t number, RuleKind kind, int32_t value) {
    if (number < kRegisterCount) rules_.registers[number] = {kind, value, nullptr};
  }

  static const uint8_t* take_expression(CfiReader& program) {
    const uint8_t* expression = program.position();
    program.skip(program.uleb());
    return expression;
  }

  void set_expression(uint64_t number, RuleKind kind, CfiReader& program) {
    const uint8_t* expression = take_expression(program);
    if (number < kRegisterCount) rules_.registers[number] = {kind, 0, expression};
  }

  void restore(uint64_t number) {
    if (number < kRegisterCount) rules_.registers[number] = initial_.registers[number];
  }

  bool push() {
    if (depth_ == kMaxDepth) return false;
    saved_[depth_++] = rules_;
    return true;
  }

  bool pop() {
    if (depth_ == 0) return false;
    rules_ = saved_[--depth_];
    return true;
  }

  static constexpr uint32_t kMaxDepth = 4;
  const Fde& fde_;
  uintptr_t pc_;
  uint64_t location_;
  FrameRules& rules_;
  FrameRules initial_;
  FrameRules saved_[kMaxDepth];
  uint32_t depth_ = 0;
};

}  // namespace

bool FrameRules::has_expressions() const noexcept {
  if (cfa.expression != nullptr) return true;
  for (const Rule& rule : registers) {
    if (rule.expression != nullptr) return true;
  }
  return false;
}

bool find_frame_rules(const UnwindTables& tables, uintptr_t pc, FrameRules& out) noexcept {
  if (tables.header == nullptr) return false;
  const uintptr_t address = search_header(tables, pc);
  const CfiReader nothing(nullptr, nullptr, nullptr);
  Fde fde{.cie = {.program = nothing}, .pc_begin = 0, .program = nothing};
  if (address == 0 || !read_fde(tables, address, pc, fde)) return false;
  out = FrameRules();
  out.signal_frame = fde.cie.signal_frame;
  return RuleProgram(fde, pc, out).run();
}

}  // namespace tidemark::injector
