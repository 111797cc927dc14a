#include "collector/job/merge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "collector/job/alignment.h"
#include "collector/job/frame_stream.h"
#include "collector/job/job.h"
#include "collector/job/rank_facts.h"
#include "collector/recover/trace_file.h"
#include "proto/base/byte_sink.h"
#include "proto/base/in_parallel.h"
#include "proto/base/output_file.h"
#include "proto/merged_file.h"
#include "proto/write/trace_writer.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

struct Input {
  std::string path;
  std::vector<RankFacts> processes;
  std::vector<std::string> notes;
  std::vector<std::string> losses;  // like notes; events of its processes are missing
  uint64_t bytes = 0;
};

// One process of one input, and its number in the output.
struct Member {
  size_t input = 0;
  size_t place = 0;     // in the input's list
  uint32_t number = 0;  // in the merged file
};

Result<std::vector<std::string>> find_files(const MergeOptions& options) {
  std::vector<std::string> files;
  std::error_code error;
  const fs::path output = fs::weakly_canonical(options.output, error);
  for (const std::string& input : options.inputs) {
    if (!fs::is_directory(input, error)) {
      if (!fs::exists(input, error)) return Error{input + ": no such file or directory"};
      files.push_back(input);
      continue;
    }
    const size_t before = files.size();
    for (const fs::directory_entry& entry : fs::directory_iterator(input, error)) {
      const std::string name = entry.path().filename().string();
      // The output of an earlier merge is not an input.
      if (is_input_name(name) && fs::weakly_canonical(entry.path(), error) != output) {
        files.push_back(entry.path().string());
      }
    }
    if (error) return Error{input + ": " + error.message()};
    if (files.size() == before) {
      return Error{input + ": no trace (.tmk) and no snapshot (.pickle) in this directory"};
    }
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
  }
  return files;
}

void note_damage(const Damage& damage, Input& input) {
  if (damage.truncated) {
    input.losses.push_back(fmt::format("{}: truncated; the part before that is used", input.path));
  } else if (damage.skipped_bytes != 0) {
    input.losses.push_back(
        fmt::format("{}: {} bytes could not be read", input.path, damage.skipped_bytes));
  } else if (damage.unfinished) {
    input.notes.push_back(fmt::format("{}: the recording was interrupted", input.path));
  }
}

Input look_at(const std::string& path) {
  Input input;
  input.path = path;
  const Result<TraceReader> reader = open_trace_file(path, input.notes);
  if (!reader) {
    input.losses.push_back("left out: " + reader.error().message);
    return input;
  }
  input.bytes = reader->file_bytes();
  input.processes = read_rank_facts(*reader);
  note_damage(reader->damage(), input);
  if (input.processes.empty()) input.notes.push_back(path + ": left out: it contains no process");
  return input;
}

std::vector<Input> look_at_all(const std::vector<std::string>& files, unsigned threads) {
  std::vector<Input> inputs(files.size());
  in_parallel(
      files.size(), [&](size_t i) { inputs[i] = look_at(files[i]); }, threads);
  return inputs;
}

class Merger {
 public:
  Merger(const MergeOptions& options, std::vector<Input> inputs, unsigned threads)
      : options_(options), inputs_(std::move(inputs)), threads_(threads) {}

  Result<MergeReport> run() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      for (const std::string& text : inputs_[i].notes) say(text);
      for (const std::string& text : inputs_[i].losses) say_lost(text, i);
    }
    if (Status one_job = choose_members(); !one_job) return one_job.error();
    if (members_.empty()) {
      return Error{report_.notes.empty() ? "no trace to merge" : report_.notes.front()};
    }
    align();
    Result<OutputFile> output = OutputFile::create(options_.output);
    if (!output) return output.error();
    if (Status status = write(output->fd()); !status) return status.error();
    if (Status status = output->commit(); !status) return status.error();
    return std::move(report_);
  }

 private:
  // For the merged file.
  struct Note {
    std::string text;
    HealthKind kind;
    size_t input;  // it belongs to the processes of this input; kWholeJob: to the first one
  };
  static constexpr size_t kWholeJob = SIZE_MAX;

  const RankFacts& facts(const Member& m) const { return inputs_[m.input].processes[m.place]; }

  void say(const std::string& text) {
    report_.notes.push_back(text);
    notes_.push_back({text, HealthKind::kSourceMissing, kWholeJob});
  }
  void say_lost(const std::string& text, size_t input) {
    report_.notes.push_back(text);
    notes_.push_back({text, HealthKind::kInputSkipped, input});
  }

  Status choose_members() {
    std::vector<JobMember> all;
    std::vector<Member> places;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      for (size_t k = 0; k < inputs_[i].processes.size(); ++k) {
        all.push_back({inputs_[i].path, &inputs_[i].processes[k]});
        places.push_back({i, k, 0});
      }
    }
    const JobCheck check = check_job(all);
    if (!check.other_jobs.empty()) {
      return Error{
          fmt::format("the traces are of several jobs ({}, {}): name those of one job; "
                      "'tidemark info TRACE' prints the job of a trace",
                      check.job, fmt::join(check.other_jobs, ", "))};
    }
    if (!check.doubled.empty()) {
      return Error{check.doubled + ": the traces are of several jobs or runs; name those of one"};
    }
    for (const std::string& text : check.notes) say(text);
    for (size_t i = 0; i < places.size(); ++i) {
      if (!check.foreign[i]) members_.push_back(places[i]);
    }
    // By rank; processes without one come last.
    const auto key = [&](const Member& m) { return static_cast<uint64_t>(facts(m).info.rank); };
    std::stable_sort(members_.begin(), members_.end(),
                     [&](const Member& a, const Member& b) { return key(a) < key(b); });
    for (size_t i = 0; i < members_.size(); ++i) members_[i].number = static_cast<uint32_t>(i + 1);
    report_.processes = members_.size();
    return {};
  }

  void align() {
    std::vector<const RankFacts*> ranks;
    for (const Member& m : members_) ranks.push_back(&facts(m));
    ClockAlignment aligned = align_clocks(ranks);
    clocks_ = std::move(aligned.clocks);
    for (const Alignment& clock : clocks_) {
      report_.aligned += clock.samples != 0;
      report_.residual_ns = std::max(report_.residual_ns, clock.residual_ns);
    }
    for (const std::string& text : aligned.warnings) say(text);
  }

  // The inputs that are copied, in the order of their first rank.
  void order_inputs() {
    for (const Member& m : members_) {
      numbers_[m.input][facts(m).process] = m.number;
      if (std::find(order_.begin(), order_.end(), m.input) == order_.end()) {
        order_.push_back(m.input);
      }
    }
    report_.files = order_.size();
  }

  Status write(int fd) {
    order_inputs();
    FdSink sink(fd);
    TraceWriter writer(sink);
    std::vector<std::string> files;
    uint64_t total = 0;
    for (const size_t i : order_) {
      files.push_back(inputs_[i].path);
      total += inputs_[i].bytes;
    }
    FrameStream frames(std::move(files), threads_);
    for (size_t place = 0; place < order_.size(); ++place) {
      copy_input(frames, place, writer);
      if (options_.progress && total != 0) {
        options_.progress(std::min(
            1.0, static_cast<double>(writer.bytes_written()) / static_cast<double>(total)));
      }
      if (writer.failed()) break;
    }
    append_notes(writer);
    if (!writer.finish()) {
      return Error{fmt::format("{}: cannot write: {}", options_.output,
                               std::strerror(writer.error_number()))};
    }
    report_.rows = writer.rows_written();
    report_.bytes = writer.bytes_written();
    return {};
  }

  void copy_input(FrameStream& frames, size_t place, TraceWriter& writer) {
    const size_t input = order_[place];
    const std::map<uint32_t, uint32_t>& numbers = numbers_[input];
    writer.begin_process(numbers.begin()->second);
    uint64_t damaged = 0;
    FrameBatch batch;
    while (frames.next(place, batch) && !writer.failed()) {
      if (!batch.error.empty()) say_lost("left out: " + batch.error, input);
      damaged += batch.damaged;
      const uint8_t* at = batch.bytes.data();
      for (const FrameHeader& header : batch.frames) {
        const std::span<const uint8_t> payload(at, header.stored_bytes);
        at += header.stored_bytes;
        const auto number = numbers.find(header.process);
        // This merge replaces the alignment of an earlier one.
        if (number == numbers.end() ||
            header.kind == static_cast<uint16_t>(BlockKind::kAlignments)) {
          continue;
        }
        writer.copy_frame(header, payload, number->second);
      }
    }
    if (damaged != 0) {
      say(fmt::format("{}: {} damaged blocks", inputs_[input].path, damaged));
    }
    const uint64_t sequence = writer.next_sequence();
    for (const auto& [process, number] : numbers) {
      next_sequence_[number] = sequence + 1;
      const Alignment& clock = clocks_[number - 1];
      if (clock.method == AlignmentMethod::kNone) continue;
      writer.begin_process(number, sequence);
      writer.append(clock);
    }
  }

  bool concerns(const Note& note, const Member& member) const {
    const bool of_job = note.input == kWholeJob || !numbers_.contains(note.input);
    return of_job ? member.number == 1 : note.input == member.input;
  }

  // What tells processes without a rank apart.
  bool needs_file_name(const Member& member) const {
    return order_.size() > 1 && facts(member).info.rank < 0;
  }

  // The notes use string ids that are free in their process.
  void append_notes(TraceWriter& writer) const {
    for (const Member& member : members_) {
      uint32_t id = facts(member).largest_string;
      writer.begin_process(member.number, next_sequence_.at(member.number));
      for (const Note& note : notes_) {
        if (!concerns(note, member)) continue;
        writer.append_string(++id, note.text);
        writer.append(Health{facts(member).first_ns, 1, id, note.kind});
      }
      if (needs_file_name(member)) {
        writer.append_string(++id, kMergedFile);
        writer.append_string(++id, fs::path(inputs_[member.input].path).filename().string());
        writer.append(Setting{id - 1, id, SettingScope::kImported});
      }
    }
  }

  const MergeOptions& options_;
  std::vector<Input> inputs_;
  unsigned threads_;
  std::vector<Member> members_;
  std::vector<Alignment> clocks_;                           // by number - 1
  std::vector<size_t> order_;                               // inputs, in the order of copying
  std::map<size_t, std::map<uint32_t, uint32_t>> numbers_;  // input -> process -> number
  std::map<uint32_t, uint64_t> next_sequence_;              // number -> of its next frame
  std::vector<Note> notes_;
  MergeReport report_;
};

}  // namespace

Result<MergeReport> merge_traces(const MergeOptions& options) {
  const Result<std::vector<std::string>> files = find_files(options);
  if (!files) return files.error();
  const unsigned threads =
      options.threads != 0 ? options.threads : std::max(1U, std::thread::hardware_concurrency());
  return Merger(options, look_at_all(*files, threads), threads).run();
}

}  // namespace tidemark
