#include "viewer/model/trace/loader.h"

#include <algorithm>
#include <new>
#include <utility>

#include "collector/trace_source.h"
#include "proto/base/work.h"

namespace tidemark::view {

namespace {

using Outcome = Result<std::shared_ptr<const Model>>;

// To analyse this many events takes too little time to notice: everything is shown at once. A
// browser is slower.
constexpr uint64_t kFewEvents = kInBrowser ? 50'000 : 1'000'000;

constexpr const char* kNoMemory = ": not enough memory on this machine to open it";
constexpr const char* kNoMemoryInBrowser =
    ": needs more memory than the browser gives to a page; open it with tidemark-view, the native "
    "viewer";

}  // namespace

struct Loader::Job {
  std::string path;
  std::optional<RankChoice> choice;
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
  std::shared_ptr<Model> model;        // written before the outcome is published
  std::shared_ptr<Groundwork> ground;  // between look() and conclude()
  std::atomic<bool> over{false};  // failed or abandoned: the parts that are left have nothing to do
  Work work;

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

  Status load_job() {
    stage = "reading the summaries of the ranks";
    Result<OpenedJob> opened = choice ? open_choice(*choice) : open_job(path, [this](double share) {
      progress = 0.85 * share;
      notify();
    });
    if (!opened) return opened.error();
    stage = "preparing the curves";
    notify();
    model = prepare_model(std::move(*opened));
    return {};
  }

  Status load() {
    if (choice || has_many_ranks(path)) return load_job();
    Result<TraceSource> opened = open_trace(path);
    if (!opened) return opened.error();
    const auto source = std::make_shared<const TraceSource>(std::move(*opened));
    stage = "reading";
    PreviewMaker sketch(source->readers, [this](const Preview& p) { publish(p); });
    const auto show_progress = [this](double share) {
      progress = 0.85 * share;
      notify();
    };
    Result<TraceModel> trace = load_trace(
        source->readers, show_progress, IndexOptions::from_environment(),
        [&](const auto& reader, const auto& ref, auto rows) { sketch.add(reader, ref, rows); });
    if (!trace) return trace.error();
    trace->path = path;
    stage = "preparing the curves";
    notify();
    model = prepare_model(std::move(*trace), source->warnings, source);
    return {};
  }

  bool few() const { return model->events <= kFewEvents; }

  // First what is drawn, then the analysis of all events, then the report, which may take many
  // times as long.
  void read() {
    if (const Status status = load(); !status) {
      publish(status.error());
      over = true;
    } else if (!few()) {
      publish(std::shared_ptr<const Model>(model));
    }
  }

  void look() {
    const Insight found = look_through(*model);
    ground = found.ground;
    if (few()) {
      model->attach(found);
      publish(std::shared_ptr<const Model>(model));
    } else {
      const std::lock_guard lock(mutex);
      insight = found;
    }
    notify();
  }

  void conclude() {
    Result<Report> made = make_report(model->trace, {}, *std::exchange(ground, nullptr));
    const std::lock_guard lock(mutex);
    report = std::move(made);
  }

  void finish() {
    // Closing the trace must not wait for the disk.
    if (model != nullptr) model->trace.indexing.clear();
    done = true;
    notify();
  }

  void run(void (Job::*part)()) {
    if (over) return;
    try {
      (this->*part)();
    } catch (const std::bad_alloc&) {
      fail(Error{path + (kInBrowser ? kNoMemoryInBrowser : kNoMemory)});
    }
  }

  void fail(const Error& error) {
    over = true;
    if (!loaded) {
      publish(error);
      return;
    }
    const std::lock_guard lock(mutex);
    report = Result<Report>(error);
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

// The work shares the ownership of its job. It must be joined here: if the job were destroyed in
// the work's thread, the thread would join itself.
Loader::~Loader() {
  abandon();
  for (const std::shared_ptr<Job>& job : abandoned_) job->work.join();
}

void Loader::abandon() {
  if (job_ == nullptr) return;
  job_->over = true;
  std::erase_if(abandoned_, [](const std::shared_ptr<Job>& job) {
    if (!job->done) return false;
    job->work.join();
    return true;
  });
  abandoned_.push_back(std::exchange(job_, nullptr));
}

void Loader::start(const std::string& path) {
  start(path, std::nullopt);
}

void Loader::start(const RankChoice& choice) {
  start(choice.job->job.path, choice);
}

void Loader::start(const std::string& path, std::optional<RankChoice> choice) {
  abandon();
  path_ = path;
  job_ = std::make_shared<Job>();
  job_->path = path;
  job_->choice = std::move(choice);
  job_->wake = wake_;
  job_->work = Work({[job = job_] { job->run(&Job::read); }, [job = job_] { job->run(&Job::look); },
                     [job = job_] { job->run(&Job::conclude); }, [job = job_] { job->finish(); }});
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
  job_->work.join();
  const std::shared_ptr<Job> job = std::exchange(job_, nullptr);
  if (!job->report) return {};
  if (!*job->report) return job->report->error();
  job->model->attach(std::move(**job->report));
  return {};
}

Outcome load_model(const std::string& path, const std::function<void(double)>& progress) {
  if (has_many_ranks(path)) {
    Result<OpenedJob> opened = open_job(path, progress);
    if (!opened) return opened.error();
    Result<std::unique_ptr<const Model>> model = make_model(prepare_model(std::move(*opened)));
    if (!model) return model.error();
    return std::shared_ptr<const Model>(std::move(*model));
  }
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
