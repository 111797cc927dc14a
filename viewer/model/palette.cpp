#include "viewer/model/palette.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tidemark::view {

namespace {

// Okabe and Ito, "Color Universal Design" (2008), without black.
constexpr Rgb kOrange{230, 159, 0};
constexpr Rgb kSky{86, 180, 233};
constexpr Rgb kGreen{0, 158, 115};
constexpr Rgb kYellow{240, 228, 66};
constexpr Rgb kBlue{0, 114, 178};
constexpr Rgb kVermillion{213, 94, 0};
constexpr Rgb kPurple{204, 121, 167};
constexpr Rgb kGrey{140, 145, 152};

constexpr std::array<Rgb, 9> kViridis = {{{68, 1, 84},
                                          {71, 44, 122},
                                          {59, 81, 139},
                                          {44, 113, 142},
                                          {33, 144, 141},
                                          {39, 173, 129},
                                          {92, 200, 99},
                                          {170, 220, 50},
                                          {253, 231, 37}}};

uint8_t mix(uint8_t a, uint8_t b, double share) {
  return static_cast<uint8_t>(std::lround(a + (b - a) * share));
}

}  // namespace

const char* colouring_name(ColourBy by) {
  switch (by) {
    case ColourBy::kCategory:
      return "category";
    case ColourBy::kStack:
      return "stack";
    case ColourBy::kAge:
      return "age";
    case ColourBy::kSize:
      return "size";
    case ColourBy::kOwner:
      return "owner";
    case ColourBy::kModule:
      return "module";
  }
  return "";
}

Rgb category_colour(Category category) {
  switch (category) {
    case Category::kParameter:
      return kBlue;
    case Category::kGradient:
      return kVermillion;
    case Category::kOptimizerState:
      return kPurple;
    case Category::kActivation:
      return kGreen;
    case Category::kInput:
      return kYellow;
    case Category::kTemporary:
      return kSky;
    case Category::kCommunication:
      return kOrange;
    case Category::kAutogradDetail:
      return shade(kGreen, 0.4);
    case Category::kKvCache:
      return shade(kVermillion, 0.4);
    case Category::kWorkspace:
      return shade(kOrange, -0.4);  // next to temporaries in a stack
    case Category::kUnknown:
      break;
  }
  return kGrey;
}

Rgb colour_in_order(uint32_t index) {
  static constexpr std::array<Rgb, 7> kBase = {kSky,  kOrange,     kGreen, kPurple,
                                               kBlue, kVermillion, kYellow};
  static constexpr std::array<double, 3> kShades = {0.0, 0.32, -0.28};
  return shade(kBase[index % kBase.size()], kShades[(index / 7) % kShades.size()]);
}

Rgb stack_colour(uint32_t stack) {
  if (stack == 0) return kGrey;
  uint32_t h = stack * 0x9E3779B1U;
  h ^= h >> 15;
  return colour_in_order(h);
}

Rgb owner_colour(std::string_view owner) {
  // Lines of the ledger have fixed colours, so that they always differ from each other.
  if (owner == "torch" || owner == "torch.allocated") return kSky;
  if (owner == "torch.pending") return shade(kSky, 0.45);
  if (owner == "torch.cached") return kOrange;
  if (owner == "nccl") return kVermillion;
  if (owner == "cublas") return kPurple;
  if (owner == "context") return kGreen;
  if (owner == "other_processes") return kYellow;
  if (owner == "code") return shade(kGreen, 0.4);
  if (owner == "unexplained" || owner == "unknown" || owner.empty()) return kGrey;
  uint32_t h = 2166136261U;  // FNV-1a
  for (const char c : owner) h = (h ^ static_cast<uint8_t>(c)) * 16777619U;
  return stack_colour(h | 1U);
}

Rgb viridis(double share) {
  const double at = std::clamp(share, 0.0, 1.0) * (kViridis.size() - 1);
  const auto below = std::min(static_cast<size_t>(at), kViridis.size() - 2);
  const double rest = at - static_cast<double>(below);
  const Rgb a = kViridis[below];
  const Rgb b = kViridis[below + 1];
  return {mix(a.r, b.r, rest), mix(a.g, b.g, rest), mix(a.b, b.b, rest)};
}

// Young blocks are bright. Logarithmic, since a run has blocks of microseconds and of hours.
Rgb age_colour(int64_t age_ns, int64_t span_ns) {
  const double age = std::log10(1 + std::max<double>(0, static_cast<double>(age_ns)) / 1e3);
  const double span = std::log10(1 + std::max<double>(1, static_cast<double>(span_ns)) / 1e3);
  return viridis(1 - age / std::max(span, 1e-9));
}

// 512 B to 16 GiB.
Rgb size_colour(uint64_t bytes) {
  const double power = std::log2(static_cast<double>(std::max<uint64_t>(bytes, 1)));
  return viridis((power - 9) / 25);
}

Rgb shade(Rgb c, double amount) {
  const uint8_t goal = amount > 0 ? 255 : 0;
  const double share = std::clamp(std::fabs(amount), 0.0, 1.0);
  return {mix(c.r, goal, share), mix(c.g, goal, share), mix(c.b, goal, share)};
}

bool is_light(Rgb c) {
  return 0.299 * c.r + 0.587 * c.g + 0.114 * c.b > 140;
}

}  // namespace tidemark::view
