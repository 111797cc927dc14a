// Reads a trace beside the drawing and reports the progress.
//
// start() and the getters belong to the drawing thread. Starting again abandons the load in
// progress: the part that is running (reading, insight, report) runs to its end, and the result is
// dropped.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "viewer/model/trace/preview.h"
#include "viewer/model/trace/view_model.h"

namespace tidemark::view {

class Loader {
 public:
  // `wake` is called from the loading threads whenever there is something new to draw.
  explicit Loader(std::function<void()> wake = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  void start(const std::string& path);
  // Loads another rank of a job of very many.
  void start(const RankChoice& choice);

  // Until there is a model to take.
  bool busy() const;
  // Also while the report is being made or an abandoned load is still running.
  bool working() const;
  const std::string& path() const { return path_; }
  double progress() const;    // 0 to 1
  std::string stage() const;  // "reading"
  std::shared_ptr<const Preview> preview() const;

  // The outcome, once; empty while busy or when nothing was started.
  std::optional<Result<std::shared_ptr<const Model>>> take();
  // The loader stays the owner of the model that was taken until the model is complete. Both
  // functions change that model, between two frames.
  //
  // Attaches the insight once it is known. True: what was made of the model's blocks is outdated.
  bool attach_insight();
  // Attaches the report once it is known.
  Status attach_report();

 private:
  struct Job;
  void abandon();
  void start(const std::string& path, std::optional<RankChoice> choice);

  std::function<void()> wake_;
  std::string path_;
  std::shared_ptr<Job> job_;
  std::vector<std::shared_ptr<Job>> abandoned_;
};

// The same without threads, for programs that draw one picture.
Result<std::shared_ptr<const Model>> load_model(const std::string& path,
                                                const std::function<void(double)>& progress = {});

}  // namespace tidemark::view
