#include "cli/live_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "analysis/wording.h"
#include "cli/terminal.h"
#include "export/safe_text.h"
#include "proto/control.h"

namespace tidemark::cli {

namespace {

std::string line_of(const CudaProcess& process, const LiveDevice& device, size_t cells) {
  std::string text = fmt::format("{:<6} {:>8}  cuda:{}  {}",
                                 process.rank >= 0 ? fmt::format("rank {}", process.rank) : "-",
                                 process.pid, device.device, fill_bar(device, cells));
  if (device.reserved_bytes != 0) {
    text += fmt::format("  allocated {}  reserved {}", size_text(device.allocated_bytes),
                        size_text(device.reserved_bytes));
  }
  if (device.process_bytes != 0) {
    text += fmt::format("  process {}", size_text(device.process_bytes));
  }
  return text + fmt::format("  card {} of {}", size_text(device.used_bytes),
                            size_text(device.total_bytes));
}

}  // namespace

std::string fill_bar(const LiveDevice& device, size_t cells) {
  const uint64_t total = std::max<uint64_t>(device.total_bytes, 1);
  const auto cells_of = [&](uint64_t bytes) {
    const double share = static_cast<double>(bytes) / static_cast<double>(total);
    return static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(cells) + 0.5);
  };
  const size_t allocated = cells_of(device.allocated_bytes);
  const size_t reserved = std::max(allocated, cells_of(device.reserved_bytes));
  const size_t used =
      std::max(reserved, cells_of(std::max(device.used_bytes, device.process_bytes)));
  return "[" + std::string(allocated, '#') + std::string(reserved - allocated, '=') +
         std::string(used - reserved, '-') + std::string(cells - used, '.') + "]";
}

LiveView::LiveView() : terminal_(::isatty(STDOUT_FILENO) != 0) {}

bool LiveView::draw(std::vector<CudaProcess>& processes) {
  constexpr size_t kCells = 24;
  std::vector<std::string> lines;
  bool any = false;
  for (CudaProcess& process : processes) {
    const Result<std::vector<LiveDevice>> devices = ask_live(process, true);
    if (!devices) {
      lines.push_back(fmt::format("{}: {}", process.label(), devices.error().message));
      any |= process.client->ask(control::kStatus).ok();  // it lives, but its card may not answer
      continue;
    }
    any = true;
    for (const LiveDevice& device : *devices) lines.push_back(line_of(process, device, kCells));
    if (devices->empty()) lines.push_back(process.label() + ": no device in use");
  }
  if (terminal_ && drawn_lines_ != 0) fmt::print("\x1b[{}A", drawn_lines_);
  const size_t width = stdout_width();
  for (const std::string& line : lines) {
    const std::string safe = safe_text(line);
    fmt::print("{}{}\n", terminal_ ? shortened(safe, width) : safe, terminal_ ? "\x1b[K" : "");
  }
  if (terminal_) fmt::print("\x1b[J");
  drawn_lines_ = lines.size();
  std::fflush(stdout);
  return any;
}

}  // namespace tidemark::cli
