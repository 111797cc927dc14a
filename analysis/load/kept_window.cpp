#include "analysis/load/kept_window.h"

#include <string_view>

namespace tidemark {

KeptWindow find_kept_window(std::span<const Mark> marks, const Dictionary& names) {
  KeptWindow window;
  for (const Mark& mark : marks) {
    if (names.string(mark.domain) != "tidemark") continue;
    const std::string_view name = names.string(mark.name);
    if (name == "kept window") window.from_ns = mark.time_ns;
    if (name == "earlier iterations") window.iterations_before = mark.correlation;
    if (name == "earlier optimizer steps") window.optimizer_steps_before = mark.correlation;
    if (name == "earlier errors") window.errors_before[mark.device] = mark.correlation;
  }
  return window;
}

}  // namespace tidemark
