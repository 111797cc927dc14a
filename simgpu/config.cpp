#include "simgpu/config.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace tidemark::simgpu {
namespace {

constexpr int kMaxCards = 64;

uint64_t number(Lookup lookup, const char* name, uint64_t fallback) {
  const char* text = lookup(name);
  if (text == nullptr || *text == '\0') return fallback;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text, &end, 10);
  return *end == '\0' ? value : fallback;
}

// The card that an entry of CUDA_VISIBLE_DEVICES names, or -1.
int visible_card(std::string_view entry, int cards) {
  if (entry.starts_with("GPU-")) {
    for (int card = 0; card < cards; ++card) {
      if (card_uuid_text(card).starts_with(entry)) return card;
    }
    return -1;
  }
  if (entry.empty() || entry.find_first_not_of("0123456789") != std::string_view::npos) return -1;
  const long card = std::strtol(std::string(entry).c_str(), nullptr, 10);
  return card < cards ? static_cast<int>(card) : -1;
}

// Like the driver: the list ends at the first entry that does not name a card.
std::vector<int> visible_cards(Lookup lookup, int cards) {
  std::vector<int> visible;
  const char* text = lookup("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int card = 0; card < cards; ++card) visible.push_back(card);
    return visible;
  }
  std::string_view rest = text;
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const int card = visible_card(rest.substr(0, comma), cards);
    if (card < 0) break;
    visible.push_back(card);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  return visible;
}

}  // namespace

Config Config::from_environment(Lookup lookup) {
  Config config;
  const uint64_t cards = number(lookup, "SIMGPU_DEVICES", 2);
  config.cards = cards > kMaxCards ? kMaxCards : static_cast<int>(cards);
  config.memory_bytes = number(lookup, "SIMGPU_MEMORY_MB", 16384) << 20;
  config.reserved_bytes = number(lookup, "SIMGPU_RESERVED_MB", 256) << 20;
  config.context_bytes = number(lookup, "SIMGPU_CONTEXT_MB", 448) << 20;
  config.kernel_ns = static_cast<int64_t>(number(lookup, "SIMGPU_KERNEL_US", 10)) * 1000;
  config.pid_offset = static_cast<int64_t>(number(lookup, "SIMGPU_PID_OFFSET", 0));
  if (const char* dir = lookup("SIMGPU_DIR")) config.dir = dir;
  config.visible = visible_cards(lookup, config.cards);
  return config;
}

void card_uuid(int card, char bytes[16]) {
  const unsigned char base[16] = {0x51, 0x40, 0x67, 0x70, 0x75, 0x00, 0x40, 0x00,
                                  0x80, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  std::memcpy(bytes, base, sizeof(base));
  bytes[15] = static_cast<char>(card + 1);
}

std::string card_uuid_text(int card) {
  unsigned char b[16];
  card_uuid(card, reinterpret_cast<char*>(b));
  char text[48];
  std::snprintf(text, sizeof(text),
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13],
                b[14], b[15]);
  return text;
}

std::string card_bus_id(int card) {
  char text[24];
  std::snprintf(text, sizeof(text), "0000:%02x:00.0", static_cast<unsigned>(card + 1) & 0xff);
  return text;
}

}  // namespace tidemark::simgpu
