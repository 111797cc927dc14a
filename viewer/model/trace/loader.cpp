#include "viewer/model/trace/loader.h"

#include <algorithm>
#include <new>
#include <utility>

#include "collector/trace_source.h"

namespace tidemark::view {

namespace {

using Outcome = Result<std::shared_ptr<const Model>>;

// To analyse this many events takes too little time to notice: everything is shown at once.
constexpr uint64_t kFewEvents = 1'000'000;

}  // namespace

struct Loader::Job {
  std::string path;
  std::function<void()> wake;
  std::atomic<bool> loaded{false};
  std::atomic<bool> done{false};
  bool taken = false;  // the drawing thread's
  std::atomic<double> progress{0};
  std::atomic<const char*> stage{"opening"};
  std::mutex mutex;  // guards the four below
  std::shared_ptr<const Preview> preview;
  std::optional<Outcome> outcome;
  std::optional<Insight> insight;
  std::optional<Result<Report>> report;
  std::shared_ptr<Model> model;  // written before the outcome is published
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

  Status load() {
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
    model = prepare_model(std::move(*trace), source->warnings, source);
    return {};
  }

  // First what is drawn, then the analysis of all events, then the report, which may take many
  // times as long.
  void run() {
    if (const Status status = load(); !status) {
      publish(status.error());
      return;
    }
    const bool few = model->events <= kFewEvents;
    if (!few) publish(std::shared_ptr<const Model>(model));
    const Insight found = look_through(*model);
    if (few) {
      model->attach(found);
      publish(std::shared_ptr<const Model>(model));
    } else {
      const std::lock_guard lock(mutex);
      insight = found;
    }
    notify();
    Result<Report> made = make_report(model->trace, {}, *found.ground);
    // Closing the trace must not wait for the disk.
    model->trace.indexing.clear();
    const std::lock_guard lock(mutex);
    report = std::move(made);
  }

  void publish(Outcome made) {
    {
      const std::lock_guard lock(mutex);
      outcome = std::move(made);
    }
    loaded = true;
    notify();
  }
};

Loader::Loader(std::function<void()> wake) : wake_(std::move(wake)) {}

// A thread shares the ownership of its job. It must be joined here: if the job were destroyed in
// the thread, the thread would join itself.
Loader::~Loader() {
  abandon();
  for (const std::shared_ptr<Job>& job : abandoned_) job->thread.join();
}

void Loader::run(const std::shared_ptr<Job>& job) {
  try {
    job->run();
  } catch (const std::bad_alloc&) {
    const Error error{job->path + ": not enough memory on this machine to open it"};
    if (!job->loaded) {
      job->publish(error);
    } else {
      const std::lock_guard lock(job->mutex);
      job->report = Result<Report>(error);
    }
  }
  job->done = true;
  job->notify();
}

void Loader::abandon() {
  if (job_ == nullptr) return;
  std::erase_if(abandoned_, [](const std::shared_ptr<Job>& job) {
    if (!job->done) return false;
    job->thread.join();
    return true;
  });
  abandoned_.push_back(std::exchange(job_, nullptr));
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

bool Loader::busy() const {
  return job_ != nullptr && !job_->taken;
}

bool Loader::working() const {
  return job_ != nullptr || std::any_of(abandoned_.begin(), abandoned_.end(),
                                        [](const auto& job) { return !job->done; });
}

std::optional<Outcome> Loader::take() {
  if (!busy() || !job_->loaded) return std::nullopt;
  job_->taken = true;
  const std::lock_guard lock(job_->mutex);
  return std::move(job_->outcome);
}

bool Loader::attach_insight() {
  if (job_ == nullptr || !job_->taken) return false;
  const std::lock_guard lock(job_->mutex);
  if (!job_->insight) return false;
  job_->model->attach(*std::exchange(job_->insight, std::nullopt));
  return true;
}

Status Loader::attach_report() {
  if (job_ == nullptr || !job_->taken || !job_->done) return {};
  job_->thread.join();
  const std::shared_ptr<Job> job = std::exchange(job_, nullptr);
  if (!job->report) return {};
  if (!*job->report) return job->report->error();
  job->model->attach(std::move(**job->report));
  return {};
}

Outcome load_model(const std::string& path, const std::function<void(double)>& progress) {
  Result<TraceSource> opened = open_trace(path);
  if (!opened) return opened.error();
  const auto source = std::make_shared<const TraceSource>(std::move(*opened));
  Result<TraceModel> trace = load_trace(source->readers, progress);
  if (!trace) return trace.error();
  trace->path = path;
  Result<std::unique_ptr<const Model>> model =
      make_model(std::move(*trace), source->warnings, source);
  if (!model) return model.error();
  return std::shared_ptr<const Model>(std::move(*model));
}

}  // namespace tidemark::view
