// The work of a page: parts that wait for their turn between two frames.
#include "proto/base/work.h"

#include <cstdint>
#include <deque>

namespace tidemark {

namespace {

struct Turn {
  uint64_t of;
  std::function<void()> part;
};

std::deque<Turn> waiting;
uint64_t last = 0;

}  // namespace

Work::Work(WorkParts parts) : turns_(++last) {
  for (std::function<void()>& part : parts) waiting.push_back({turns_, std::move(part)});
}

Work& Work::operator=(Work&& other) noexcept {
  if (this == &other) return *this;
  join();
  turns_ = std::exchange(other.turns_, 0);
  return *this;
}

void Work::join() {
  std::erase_if(waiting, [this](const Turn& turn) { return turn.of == turns_; });
  turns_ = 0;
}

bool work_is_waiting() {
  return !waiting.empty();
}

void run_waiting_work() {
  if (waiting.empty()) return;
  const std::function<void()> part = std::move(waiting.front().part);
  waiting.pop_front();
  part();
}

}  // namespace tidemark
