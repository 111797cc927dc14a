// Where the allocations of a recording are among its requests, and requests that are inserted
// there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "analysis/plan/program/program.h"
#include "analysis/whatif/allocator/request_log.h"

namespace tidemark {

class RequestPlaces {
 public:
  RequestPlaces(const RecordedProgram& program, const RequestLog& log)
      : program_(program), made_(program.rows(), kNever), freed_(program.rows(), kNever) {
    int64_t now = program.model().time_ns.empty() ? 0 : program.model().time_ns[0];
    for (uint32_t at = 0; at < log.requests.size(); ++at) {
      const auto [subject, kind] = log.requests[at];
      const bool of_row = kind != RequestKind::kEmptyCache && kind != RequestKind::kRetirePool &&
                          subject < program.rows();
      if (of_row && kind == RequestKind::kAllocate) {
        made_[subject] = at;
        now = program.model().time_ns[program.model().allocations.birth(subject)];
      } else if (of_row) {
        freed_[subject] = std::min(freed_[subject], at);
        const bool released = kind == RequestKind::kRelease;
        const uint32_t event = released ? program.model().allocations.release(subject)
                                        : program.model().allocations.death(subject);
        if (event != kNever) now = std::max(now, program.model().time_ns[event]);
      } else if (kind == RequestKind::kFail) {
        now = std::max(now, log.failed_ns[subject - program.rows()]);
      }
      time_ns_.push_back(now);
    }
  }

  // Requests that allocate and free a row; kNever: none.
  uint32_t made(size_t row) const { return made_[row]; }
  uint32_t freed(size_t row) const { return freed_[row]; }
  // The request of the first row born at or after an event.
  uint32_t after_birth(uint32_t event) const {
    const BirthRange range = births_within(program_.model(), event, kNever);
    for (size_t row = range.begin; row < made_.size(); ++row) {
      if (made_[row] != kNever) return made_[row];
    }
    return static_cast<uint32_t>(time_ns_.size());
  }
  const std::vector<int64_t>& time_ns() const { return time_ns_; }

 private:
  const RecordedProgram& program_;
  std::vector<uint32_t> made_;
  std::vector<uint32_t> freed_;
  std::vector<int64_t> time_ns_;
};

class RequestEdits {
 public:
  explicit RequestEdits(const RequestLog& log) : log_(log) {}

  uint32_t end() const { return static_cast<uint32_t>(log_.requests.size()); }
  // Before the request at this place; several at one place stay in the order of these calls.
  void insert(uint32_t at, Request request) { inserted_.push_back({std::min(at, end()), request}); }
  void move(uint32_t from, uint32_t to) {
    insert(to, log_.requests[from]);
    moved_.insert(from);
  }

  void take(const RequestPlaces& places, std::vector<Request>& requests,
            std::vector<int64_t>& time_ns) && {
    std::stable_sort(inserted_.begin(), inserted_.end(),
                     [](const Inserted& a, const Inserted& b) { return a.at < b.at; });
    auto next = inserted_.begin();
    int64_t now = places.time_ns().empty() ? 0 : places.time_ns().front();
    for (uint32_t at = 0; at <= end(); ++at) {
      if (at < end()) now = places.time_ns()[at];
      for (; next != inserted_.end() && next->at == at; ++next) {
        requests.push_back(next->request);
        time_ns.push_back(now);
      }
      if (at == end()) break;
      if (moved_.contains(at)) continue;
      requests.push_back(log_.requests[at]);
      time_ns.push_back(now);
    }
  }

 private:
  struct Inserted {
    uint32_t at;
    Request request;
  };
  const RequestLog& log_;
  std::vector<Inserted> inserted_;
  std::unordered_set<uint32_t> moved_;
};

}  // namespace tidemark
