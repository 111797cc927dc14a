#include "export/page/page_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>

#include "export/report/html_writer.h"
#include "proto/base/output_file.h"
#include "proto/write/trace_writer.h"

namespace tidemark {

namespace {

namespace fs = std::filesystem;

// page.html has it where traces go.
constexpr std::string_view kPlace = "<!-- traces -->\n";
// A browser's strings end at 512 MiB; a multiple of 3, so that base64 has no padding inside.
constexpr size_t kPartBytes = size_t{48} << 20;
constexpr size_t kReadBytes = size_t{3} << 18;

class MemorySink final : public ByteSink {
 public:
  bool write(std::span<const uint8_t> more) noexcept override {
    try {
      bytes.insert(bytes.end(), more.begin(), more.end());
    } catch (const std::bad_alloc&) {
      errno = ENOMEM;
      return false;
    }
    return true;
  }
  std::vector<uint8_t> bytes;
};

// Three bytes become four characters; only the last piece of a part may have another length.
std::string base64(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(bytes.size() - i, 3);
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k) word = word << 8 | (k < left ? bytes[i + k] : 0);
    for (size_t k = 0; k < 4; ++k) text += k <= left ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

struct Choice {
  const TraceReader* reader;
  std::set<uint32_t> processes;  // in the file
};

std::vector<Choice> choose(const ExportInput& input, std::span<const ExportProcess> processes) {
  std::vector<Choice> choices;
  for (const TraceReader& reader : input.readers) {
    Choice choice{&reader, {}};
    for (const ExportProcess& p : processes) {
      if (p.reader == &reader) choice.processes.insert(p.id);
    }
    if (!choice.processes.empty()) choices.push_back(std::move(choice));
  }
  return choices;
}

bool is_after(const BlockRef& ref, const TimeRange& time) {
  return ref.kind >= BlockKind::kDriverEvents && ref.kind < BlockKind::kAlignments &&
         ref.first_ns > time.end_ns;
}

bool is_whole(const Choice& choice, const TimeRange& time) {
  const auto blocks = choice.reader->blocks();
  return choice.reader->left_out().empty() &&
         std::all_of(blocks.begin(), blocks.end(), [&](const BlockRef& ref) {
           return choice.processes.contains(ref.process) && !is_after(ref, time);
         });
}

// The chosen blocks as a trace of their own.
Result<std::vector<uint8_t>> part_of(const Choice& choice, const TimeRange& time) {
  MemorySink sink;
  TraceWriter writer(sink);
  std::vector<uint8_t> payload;
  for (const BlockRef& ref : choice.reader->blocks()) {
    if (!choice.processes.contains(ref.process) || is_after(ref, time)) continue;
    FrameHeader header;
    payload.resize(ref.stored_bytes);
    // What cannot be read is counted as damage where the trace is loaded; it is not copied.
    if (!choice.reader->read_at(ref.offset, &header, sizeof header) ||
        !choice.reader->read_at(ref.offset + sizeof header, payload.data(), payload.size())) {
      continue;
    }
    writer.copy_frame(header, payload, header.process);
  }
  if (!writer.finish()) {
    return Error{choice.reader->path() + ": " + std::strerror(writer.error_number())};
  }
  return std::move(sink.bytes);
}

class PageWriter {
 public:
  PageWriter(int fd, const std::string& path) : sink_(fd), path_(path) {}

  Status put(std::string_view text) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    if (!sink_.write({bytes, text.size()})) {
      return Error{path_ + ": cannot write: " + std::strerror(errno)};
    }
    bytes_ += text.size();
    return {};
  }

  // `read(offset, out)` fills `out`.
  template <typename Read>
  Status put_trace(const std::string& attributes, uint64_t size, Read read) {
    for (uint64_t part = 0; part < size; part += kPartBytes) {
      const uint64_t end = std::min<uint64_t>(size, part + kPartBytes);
      if (Status s =
              put("<script type=\"application/octet-stream\" class=\"trace\" " + attributes + ">");
          !s) {
        return s;
      }
      for (uint64_t at = part; at < end; at += kReadBytes) {
        buffer_.resize(static_cast<size_t>(std::min<uint64_t>(kReadBytes, end - at)));
        if (!read(at, std::span(buffer_))) return Error{"the trace changed while it was read"};
        if (Status s = put(base64(buffer_)); !s) return s;
      }
      if (Status s = put("</script>\n"); !s) return s;
    }
    return {};
  }

  uint64_t bytes() const { return bytes_; }

 private:
  FdSink sink_;
  const std::string& path_;
  std::vector<uint8_t> buffer_;
  uint64_t bytes_ = 0;
};

// The visible range, for the page.
std::string link_of(const TraceModel& model, const TimeRange& time, const std::string& link) {
  if (time.begin_ns <= model.start_ns && time.end_ns >= model.end_ns) return link;
  const std::string view =
      fmt::format("view={}ns-{}ns", std::max(time.begin_ns, model.start_ns) - model.start_ns,
                  std::min(time.end_ns, model.end_ns) - model.start_ns);
  return link.empty() ? view : link + "&" + view;
}

}  // namespace

Result<std::string> find_viewer_page() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path installed = self.parent_path() / "share/tidemark/tidemark-view.html";
  for (const fs::path& page : {installed, self.parent_path() / "web/tidemark-view.html"}) {
    if (fs::is_regular_file(page, error)) return page.string();
  }
  return Error{installed.string() +
               " not found: this tidemark was built without the page (build it with scripts/web)"};
}

Result<ExportSummary> export_page(const ExportInput& input, const ExportOptions& options,
                                  const PageOptions& page, const std::string& path,
                                  const Progress& progress) {
  std::ifstream file(page.page, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t place = text.find(kPlace);
  if (place == std::string::npos) return Error{page.page + ": not the viewer's page"};
  const auto processes = chosen_processes(input, options);
  if (!processes) return processes.error();
  const std::vector<Choice> choices = choose(input, *processes);

  Result<OutputFile> output = OutputFile::create(path);
  if (!output) return output.error();
  PageWriter writer(output->fd(), path);
  if (Status s = writer.put(std::string_view(text).substr(0, place)); !s) return s.error();
  const std::string folder =
      choices.size() > 1 ? fs::path(input.model.path).lexically_normal().filename().string() : "";
  const std::string link = link_of(input.model, options.time, page.link);
  for (size_t i = 0; i < choices.size(); ++i) {
    const TraceReader& reader = *choices[i].reader;
    std::vector<uint8_t> part;
    const bool whole = is_whole(choices[i], options.time);
    if (!whole) {
      auto made = part_of(choices[i], options.time);
      if (!made) return made.error();
      part = std::move(*made);
    }
    const uint64_t size = whole ? reader.file_bytes() : part.size();
    if (writer.bytes() + size > options.max_bytes) {
      return Error{fmt::format("{}: larger than --max-size; choose a --time or --ranks", path)};
    }
    const std::string attributes = fmt::format(
        "data-file=\"{}\" data-name=\"{}\" data-folder=\"{}\" data-bytes=\"{}\" data-link=\"{}\"",
        i, html_escaped(fs::path(reader.path()).filename().string()), html_escaped(folder), size,
        html_escaped(link));
    const Status put = writer.put_trace(attributes, size, [&](uint64_t at, std::span<uint8_t> out) {
      if (whole) return reader.read_at(at, out.data(), out.size());
      std::memcpy(out.data(), part.data() + at, out.size());
      return true;
    });
    if (!put) return put.error();
    if (progress) progress(static_cast<double>(i + 1) / static_cast<double>(choices.size()));
  }
  if (Status s = writer.put(std::string_view(text).substr(place)); !s) return s.error();
  if (Status s = output->commit(); !s) return s.error();
  return ExportSummary{writer.bytes(), choices.size(), {}};
}

}  // namespace tidemark
