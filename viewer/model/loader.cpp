#include "viewer/model/loader.h"

#include <algorithm>
#include <new>
#include <utility>

#include "collector/trace_source.h"

namespace tidemark::view {

namespace {

using Outcome = Result<std::shared_ptr<const Model>>;

Outcome as_shared(Result<std::unique_ptr<const Model>> model) {
  if (!model) return model.error();
  return std::shared_ptr<const Model>(std::move(*model));
}

}  // namespace

struct Loader::Job {
  std::string path;
  std::function<void()> wake;
  std::atomic<bool> done{false};
  std::atomic<double> progress{0};
  std::atomic<const char*> stage{"opening"};
  std::mutex mutex;  // guards the two below
  std::shared_ptr<const Preview> preview;
  std::optional<Outcome> outcome;
  std::jthread thread;

  void notify() const {
    if (wake) wake();
  }

  void publish(const Preview& p) {
    {
      const std::lock_guard lock(mutex);
      preview = std::make_shared<const Preview>(p);
    }
    notify();
  }

  Outcome load() {
    Result<TraceSource> opened = open_trace(path);
    if (!opened) return opened.error();
    const auto source = std::make_shared<const TraceSource>(std::move(*opened));
    stage = "reading";
    std::atomic<bool> stop_preview{false};
    const std::jthread sketch([&] {
      make_preview(source->readers, stop_preview, [this](const Preview& p) { publish(p); });
    });
    Result<TraceModel> trace = load_trace(source->readers, [this](double share) {
      progress = 0.85 * share;
      notify();
    });
    stop_preview = true;
    if (!trace) return trace.error();
    trace->path = path;
    stage = "preparing the curves";
    notify();
    return as_shared(make_model(std::move(*trace), source->warnings, source));
  }
};

Loader::Loader(std::function<void()> wake) : wake_(std::move(wake)) {}

Loader::~Loader() {
  abandon();
}

void Loader::run(const std::shared_ptr<Job>& job) {
  Outcome outcome = Error{""};
  try {
    outcome = job->load();
  } catch (const std::bad_alloc&) {
    outcome = Error{job->path + ": not enough memory on this machine to open it"};
  }
  {
    const std::lock_guard lock(job->mutex);
    job->outcome = std::move(outcome);
  }
  job->done = true;
  job->notify();
}

void Loader::abandon() {
  if (job_ == nullptr) return;
  abandoned_.push_back(std::move(job_->thread));
  job_ = nullptr;
}

void Loader::start(const std::string& path) {
  abandon();
  path_ = path;
  job_ = std::make_shared<Job>();
  job_->path = path;
  job_->wake = wake_;
  job_->thread = std::jthread([job = job_] { run(job); });
}

double Loader::progress() const {
  return job_ == nullptr ? 0 : job_->progress.load();
}

std::string Loader::stage() const {
  return job_ == nullptr ? "" : job_->stage.load();
}

std::shared_ptr<const Preview> Loader::preview() const {
  if (job_ == nullptr) return nullptr;
  const std::lock_guard lock(job_->mutex);
  return job_->preview;
}

std::optional<Outcome> Loader::take() {
  if (job_ == nullptr || !job_->done) return std::nullopt;
  job_->thread.join();
  std::optional<Outcome> outcome = std::move(job_->outcome);
  job_ = nullptr;
  return outcome;
}

Outcome load_model(const std::string& path, const std::function<void(double)>& progress) {
  Result<TraceSource> opened = open_trace(path);
  if (!opened) return opened.error();
  const auto source = std::make_shared<const TraceSource>(std::move(*opened));
  Result<TraceModel> trace = load_trace(source->readers, progress);
  if (!trace) return trace.error();
  trace->path = path;
  return as_shared(make_model(std::move(*trace), source->warnings, source));
}

}  // namespace tidemark::view
