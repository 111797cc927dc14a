#include "analysis/plan/laws/reduction_buffers.h"

#include <algorithm>
#include <cctype>

namespace tidemark {

namespace {

constexpr uint64_t kThreads = 128;  // 32 of them along the outputs, 4 outputs each
constexpr uint64_t kOutputs = 128;  // of a block

uint64_t divided_up(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}

bool has_words(std::string_view text, std::string_view words) {
  const auto joins = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const size_t at = text.find(words);
  if (at == text.npos) return false;
  const size_t end = at + words.size();
  return (at == 0 || !joins(text[at - 1])) && (end == text.size() || !joins(text[end]));
}

struct Found {
  uint32_t row = 0;
  uint64_t result = 0;  // bytes
  uint64_t unit = 0;    // bytes for one block per output
  uint64_t grid = 0;    // blocks along the outputs
  uint64_t count = 0;   // blocks per output
};

// The result, the buffer and the semaphores follow each other.
bool find_buffer(const RecordedProgram& program, uint32_t row, Found& found) {
  const uint64_t result = program.bytes(row - 1);
  const uint64_t buffer = program.bytes(row);
  const uint64_t semaphores = program.bytes(row + 1);
  for (const uint64_t number : {uint64_t{4}, uint64_t{2}}) {
    const uint64_t outputs = result / number;
    const uint64_t unit = 4 * outputs * kOutputs;
    if (outputs == 0 || semaphores != 4 * divided_up(outputs, kOutputs) || buffer % unit != 0 ||
        buffer == 0) {
      continue;
    }
    found = {row, result, unit, divided_up(outputs, kOutputs), buffer / unit};
    return true;
  }
  return false;
}

// Blocks per output that make 16 rows each, of a buffer that the card limits: the rows are what is
// added up, one of the last blocks before it.
uint64_t wanted_blocks(const RecordedProgram& program, const Found& f) {
  constexpr uint32_t kLookBack = 32;
  const uint32_t born = program.model().allocations.birth(f.row);
  uint64_t rows = 0;
  for (uint32_t i = f.row - std::min(f.row, kLookBack); i < f.row; ++i) {
    const bool whole = program.bytes(i) % f.result == 0;
    if (whole && program.model().allocations.alive_at(i, born)) {
      rows = std::max(rows, program.bytes(i) / f.result);
    }
  }
  return std::max(f.count, divided_up(divided_up(rows, 4), 16));
}

}  // namespace

uint64_t resident_blocks(std::string_view card) {
  struct Card {
    std::string_view name;
    uint64_t multiprocessors;
    uint64_t threads;  // that one of them runs
  };
  // More special names first.
  static constexpr Card kCards[] = {
      {"H100 PCIe", 114, 2048}, {"H100", 132, 2048},     {"H200", 132, 2048}, {"H800", 132, 2048},
      {"H20", 78, 2048},        {"GH200", 132, 2048},    {"B200", 148, 2048}, {"GB200", 148, 2048},
      {"A100", 108, 2048},      {"A800", 108, 2048},     {"A30", 56, 2048},   {"V100", 80, 2048},
      {"T4", 40, 1024},         {"A10", 72, 1536},       {"A10G", 80, 1536},  {"A40", 84, 1536},
      {"RTX A6000", 84, 1536},  {"L4", 58, 1536},        {"L40", 142, 1536},  {"L40S", 142, 1536},
      {"RTX 3090", 82, 1536},   {"RTX 4090", 128, 1536},
  };
  for (const Card& c : kCards) {
    if (has_words(card, c.name)) return c.multiprocessors * c.threads / kThreads;
  }
  return 0;
}

std::vector<ReductionBuffer> reduction_buffers(const RecordedProgram& program) {
  std::string_view card;
  for (const Device& d : program.process().devices) {
    if (d.ordinal == program.model().device) card = program.process().names.string(d.name);
  }
  const uint64_t resident = resident_blocks(card);
  if (resident == 0) return {};
  std::vector<ReductionBuffer> buffers;
  for (const OperationRun& run : program.runs()) {
    if (program.role(run.first) != StackRole::kBackward) continue;
    for (uint32_t i = run.first + 1; i + 1 < run.end; ++i) {
      Found found;
      if (!find_buffer(program, i, found)) continue;
      const uint64_t full = divided_up(resident, found.grid);
      const uint64_t wanted = found.count < full ? found.count : wanted_blocks(program, found);
      buffers.push_back({i, found.unit * wanted, found.unit * std::max(full, found.count)});
    }
  }
  return buffers;
}

}  // namespace tidemark
