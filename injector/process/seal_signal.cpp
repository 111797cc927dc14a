#include "injector/process/seal_signal.h"

#include <signal.h>

#include <atomic>
#include <charconv>

namespace tidemark::injector {
namespace {

std::atomic<uint32_t> g_received{0};
std::atomic<int> g_installed{0};  // number

void on_signal(int) {
  g_received.fetch_add(1, std::memory_order_relaxed);
}

bool is_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == on_signal;
}

}  // namespace

int parse_seal_signal(std::string_view name) noexcept {
  constexpr std::string_view kPrefix = "SIG";
  constexpr std::string_view kRealTime = "RTMIN+";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name == "USR1") return SIGUSR1;
  if (name == "USR2") return SIGUSR2;
  if (!name.starts_with(kRealTime)) return 0;
  name.remove_prefix(kRealTime.size());
  int above = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), above);
  if (error != std::errc() || end != name.data() + name.size()) return 0;
  return above >= 0 && above <= SIGRTMAX - SIGRTMIN ? SIGRTMIN + above : 0;
}

bool install_seal_signal(int number) noexcept {
  struct sigaction before {};
  if (::sigaction(number, nullptr, &before) != 0) return false;
  if (is_ours(before)) return true;  // a forked child has that of its parent
  if (!is_default(before)) return false;
  struct sigaction ours {};
  sigemptyset(&ours.sa_mask);
  ours.sa_flags = SA_RESTART | SA_ONSTACK;
  ours.sa_handler = on_signal;
  if (::sigaction(number, &ours, nullptr) != 0) return false;
  g_installed.store(number);
  return true;
}

void remove_seal_signal() noexcept {
  const int number = g_installed.exchange(0);
  struct sigaction now {};
  if (number == 0 || ::sigaction(number, nullptr, &now) != 0 || !is_ours(now)) return;
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(number, &usual, nullptr);
}

uint32_t seal_signals() noexcept {
  return g_received.load(std::memory_order_relaxed);
}

}  // namespace tidemark::injector
