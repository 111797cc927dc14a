#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "export/counter_samples.h"
#include "export/export_input.h"
#include "export/mark_ranges.h"
#include "export/report/rank_report.h"
#include "export/report/report_wording.h"
#include "export/safe_text.h"
#include "export/snapshot/snapshot_pickle.h"
#include "export/styled_text.h"
#include "export/tables/table_rows.h"
#include "export/utf8.h"
#include "export/whatif/whatif_text.h"

namespace tidemark {
namespace {

class StringSink final : public ByteSink {
 public:
  bool write(std::span<const uint8_t> bytes) noexcept override {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  }
  std::string text;
};

std::vector<CounterSample> thinned(const std::vector<CounterSample>& samples, int64_t width) {
  std::vector<CounterSample> kept;
  SampleThinner thinner(samples.front().time_ns, width);
  const auto keep = [&](const CounterSample& s) { kept.push_back(s); };
  for (const CounterSample& s : samples) thinner.add(s, keep);
  thinner.flush(keep);
  return kept;
}

// What the highest rank holds more than the typical one stands below it, also where another rank
// was the one that left the others.
TEST(RankLines, TheExcessIsThatOfTheHighestRank) {
  RankComparison c;
  c.compared = c.framework = true;
  c.highest = {3, 0, 380 << 20, 0};
  c.typical = {1, 0, 148 << 20, 0};
  c.owners = {{"torch", 480 << 20, 196 << 20}};
  c.divergence = {true, 2, 0, 98 << 20};
  const std::vector<std::string> lines = rank_lines(c, 0);
  ASSERT_GE(lines.size(), 3U);
  EXPECT_EQ(lines[0].rfind("highest: rank 3", 0), 0U) << lines[0];
  EXPECT_NE(lines[1].find("284.0 MiB more for torch"), std::string::npos) << lines[1];
  EXPECT_EQ(lines[2].rfind("rank 2 was mostly above the median", 0), 0U) << lines[2];
}

// 10.06 and 10.09 GiB both read 10.1 GiB.
TEST(PeakLines, TwoPeaksOnALineDoNotReadTheSame) {
  DeviceReport d;
  d.driver_peak = {10'800'000'000, 1, 0};
  d.device_used_peak = d.driver_peak;
  d.highest_reading_bytes = 10'790'000'000;
  d.run.kept_from_ns = 1;
  d.run.driver_peak = {10'830'000'000, 1, 0};
  const std::vector<NamedPeak> peaks = peaks_of(d);
  ASSERT_EQ(peaks.size(), 2U);
  EXPECT_NE(peaks[0].note.find("; 10,830,000,000 bytes in the whole run"), std::string::npos)
      << peaks[0].note;
  EXPECT_NE(peaks[1].note.find("highest reading 10.0 GiB"), std::string::npos) << peaks[1].note;
}

TEST(SampleThinner, KeepsLeastGreatestAndLastOfEveryStretch) {
  std::mt19937_64 random(3);
  std::vector<CounterSample> samples;
  int64_t time = 1000;
  for (int i = 0; i < 5000; ++i) {
    time += static_cast<int64_t>(random() % 4);
    samples.push_back({time, random() % 1000, static_cast<uint32_t>(random() % 3)});
  }
  constexpr int64_t kWidth = 97;
  const auto kept = thinned(samples, kWidth);
  EXPECT_LT(kept.size(), samples.size());
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(),
                             [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; }));
  for (uint32_t counter = 0; counter < 3; ++counter) {
    for (int64_t from = samples.front().time_ns; from <= time; from += kWidth) {
      const auto values_of = [&](const std::vector<CounterSample>& all) {
        std::vector<uint64_t> values;
        for (const CounterSample& s : all) {
          if (s.counter == counter && s.time_ns >= from && s.time_ns < from + kWidth) {
            values.push_back(s.value);
          }
        }
        return values;
      };
      const auto all = values_of(samples);
      const auto some = values_of(kept);
      ASSERT_EQ(all.empty(), some.empty());
      if (all.empty()) continue;
      EXPECT_LE(some.size(), SampleThinner::kKeptPerStretch);
      EXPECT_EQ(*std::max_element(all.begin(), all.end()),
                *std::max_element(some.begin(), some.end()));
      EXPECT_EQ(*std::min_element(all.begin(), all.end()),
                *std::min_element(some.begin(), some.end()));
      EXPECT_EQ(all.back(), some.back());
    }
  }
}

Mark mark(int64_t time, MarkPhase phase, uint32_t name, uint64_t correlation = 0) {
  Mark m{};
  m.time_ns = time;
  m.phase = phase;
  m.name = name;
  m.correlation = correlation;
  m.kind = MarkKind::kNvtx;
  return m;
}

TEST(MarkRanges, PairsNestedCrossingAndOpenRanges) {
  const std::vector<Mark> marks = {
      mark(5, MarkPhase::kEnd, 9),  // began before the recording
      mark(10, MarkPhase::kBegin, 1),    mark(20, MarkPhase::kBegin, 1),
      mark(30, MarkPhase::kEnd, 1),      mark(40, MarkPhase::kEnd, 1),
      mark(50, MarkPhase::kBegin, 2, 1), mark(60, MarkPhase::kBegin, 2, 2),
      mark(70, MarkPhase::kEnd, 2, 1),   mark(80, MarkPhase::kEnd, 2, 2),
      mark(90, MarkPhase::kBegin, 3),    mark(95, MarkPhase::kInstant, 4),
  };
  const auto ranges = mark_ranges(marks);
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const MarkRange& r : ranges) spans.emplace_back(r.mark.time_ns, r.end_ns);
  const std::vector<std::pair<int64_t, int64_t>> expected = {{10, 40}, {20, 30},        {50, 70},
                                                             {60, 80}, {90, INT64_MAX}, {95, 95}};
  EXPECT_EQ(spans, expected);
}

TEST(MarkRanges, PartsOfAStretchWithoutKernelsAreOne) {
  std::vector<Mark> marks = {
      mark(10, MarkPhase::kBegin, 1), mark(20, MarkPhase::kEnd, 1),
      mark(20, MarkPhase::kBegin, 1), mark(30, MarkPhase::kEnd, 1),
      mark(40, MarkPhase::kBegin, 1), mark(50, MarkPhase::kEnd, 1),
  };
  EXPECT_EQ(mark_ranges(marks).size(), 3u) << "those of a program stay as they are";
  for (Mark& m : marks) m.kind = MarkKind::kNotRecorded;
  const auto ranges = mark_ranges(marks);
  ASSERT_EQ(ranges.size(), 2u);
  EXPECT_EQ(ranges[0].end_ns, 30);
  EXPECT_EQ(ranges[1].end_ns, 50);
}

std::string number_bytes(int64_t value) {
  StringSink sink;
  PickleWriter writer(sink);
  writer.number(value);
  EXPECT_TRUE(writer.finish());
  return sink.text.substr(2, sink.text.size() - 3);
}

// The bytes CPython's pickle.dumps(value, 4) writes between PROTO and STOP.
TEST(PickleWriter, WritesNumbersAsCPythonDoes) {
  using namespace std::string_literals;
  EXPECT_EQ(number_bytes(0), "K\x00"s);
  EXPECT_EQ(number_bytes(255), "K\xff"s);
  EXPECT_EQ(number_bytes(256), "M\x00\x01"s);
  EXPECT_EQ(number_bytes(65536), "J\x00\x00\x01\x00"s);
  EXPECT_EQ(number_bytes(-1), "J\xff\xff\xff\xff"s);
  EXPECT_EQ(number_bytes(INT64_C(2147483647)), "J\xff\xff\xff\x7f"s);
  EXPECT_EQ(number_bytes(INT64_C(2147483648)), "\x8a\x05\x00\x00\x00\x80\x00"s);
  EXPECT_EQ(number_bytes(INT64_C(-2147483649)), "\x8a\x05\xff\xff\xff\x7f\xff"s);
  EXPECT_EQ(number_bytes(INT64_MAX), "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"s);
  EXPECT_EQ(number_bytes(INT64_MIN), "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"s);
}

TEST(PickleWriter, WritesUnsignedNumbersPast63Bits) {
  using namespace std::string_literals;
  StringSink sink;
  PickleWriter writer(sink);
  writer.unsigned_number(UINT64_C(1) << 63);
  EXPECT_TRUE(writer.finish());
  EXPECT_EQ(sink.text, "\x80\x04\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x80\x00."s);
}

TEST(PickleWriter, RefersToTextsItHasWritten) {
  using namespace std::string_literals;
  StringSink sink;
  PickleWriter writer(sink);
  writer.begin_list();
  for (int i = 0; i < 2; ++i) {
    writer.item();
    writer.text("ab");
  }
  writer.end_list();
  EXPECT_TRUE(writer.finish());
  EXPECT_EQ(sink.text, "\x80\x04](\x8c\x02\x61\x62\x94h\x00\x65."s);
}

class CountingSink final : public TableSink {
 public:
  size_t put = 0;

 private:
  void put_table(const TableSpec&) override {}
  void put_integer(int64_t) override { ++put; }
  void put_null() override { ++put; }
  void put_text(std::string_view) override { ++put; }
  void put_row_end() override {}
  void put_end() override {}
  Status commit() override { return {}; }
};

// Rows with this many cells, into a table of three columns.
Status rows_of(std::initializer_list<size_t> cells, CountingSink& sink) {
  const TableSpec table{"things", {{"a"}, {"b", CellType::kText}, {"c"}}, {}};
  sink.begin_table(table);
  for (const size_t count : cells) {
    for (size_t i = 0; i < count; ++i) i == 1 ? sink.text("b") : sink.integer(1);
    sink.end_row();
  }
  return sink.finish();
}

TEST(TableSink, RowsHaveTheCellsOfTheirTable) {
  CountingSink good;
  EXPECT_TRUE(rows_of({3, 3}, good));
  EXPECT_EQ(good.rows(), 2U);
  for (const size_t cells : {0U, 2U, 4U}) {
    CountingSink bad;
    const Status status = rows_of({3, cells, 3}, bad);
    ASSERT_FALSE(status) << cells;
    EXPECT_NE(status.error().message.find("things"), std::string::npos) << status.error().message;
    EXPECT_FALSE(bad.good());
    EXPECT_LE(bad.put, 9U);  // no cell without a column reaches the format
  }
  CountingSink unfinished;
  unfinished.begin_table({"things", {{"a"}, {"b"}}, {}});
  unfinished.integer(1);
  EXPECT_FALSE(unfinished.finish());
}

TEST(Utf8Text, ReplacesWhatIsNotUtf8) {
  EXPECT_EQ(utf8_text("plain \xc3\xa9 \xf0\x9f\x8c\x8a"), "plain \xc3\xa9 \xf0\x9f\x8c\x8a");
  EXPECT_EQ(utf8_text("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(utf8_text("a\xc3"), "a\xef\xbf\xbd");
  EXPECT_EQ(utf8_text("\xc0\x80"), "\xef\xbf\xbd\xef\xbf\xbd");                  // overlong
  EXPECT_EQ(utf8_text("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // surrogate
}

TEST(SafeText, ShowsWhatWouldControlATerminal) {
  EXPECT_EQ(safe_text("plain \xc3\xa9 \xf0\x9f\x8c\x8a"), "plain \xc3\xa9 \xf0\x9f\x8c\x8a");
  EXPECT_EQ(safe_text("\x1b[2J\x1b]0;x\x07"), "\\x1b[2J\\x1b]0;x\\x07");
  EXPECT_EQ(safe_text("a\r\n\tb\x7f"), "a\\r\\n\\tb\\x7f");
  EXPECT_EQ(safe_text("\xc2\x9b"
                      "2J"),
            "\\u009b2J");
  EXPECT_EQ(safe_text("a\xe2\x80\xae"), "a\\u202e");                   // right-to-left override
  EXPECT_EQ(safe_text("\xe2\x81\xa6\xe2\x80\xa8"), "\\u2066\\u2028");  // isolate, line separator
  EXPECT_EQ(safe_text("\x9b"), "\xef\xbf\xbd");
  EXPECT_EQ(safe_text(std::string_view("a\0b", 3)), "a\\x00b");
  const std::string once = safe_text("\x1b\xff\xe2\x80\xae");
  EXPECT_EQ(safe_text(once), once);
}

TEST(SafeText, CutsBetweenCharacters) {
  const std::string text = "\xc3\xa9\xc3\xa9\xf0\x9f\x8c\x8a\xc3\xa9\xc3\xa9";  // five characters
  EXPECT_EQ(text_columns(text), 5U);
  EXPECT_EQ(shortened(text, 5), text);
  EXPECT_EQ(shortened(text, 4), "\xc3\xa9...");
  EXPECT_EQ(shortened(text, 3), "...");
  for (size_t columns = 0; columns < 8; ++columns) {
    const std::string part = shortened(text, columns);
    EXPECT_EQ(utf8_text(part), part) << columns;
    EXPECT_LE(text_columns(part), columns);
  }
}

TEST(StyledText, KeepsOnlyItsOwnColours) {
  const StyledText bold = StyledText::painted("\x1b[31mx", "1");
  EXPECT_EQ(bold.text(), "\x1b[1m\\x1b[31mx\x1b[0m");
  EXPECT_EQ(styled("{:>3}|{}|{}", "\n", bold, 7).text(), " \\n|" + bold.text() + "|7");
  EXPECT_EQ(("\x1b" + bold + std::string("\r")).text(), "\\x1b" + bold.text() + "\\r");
}

TEST(OffsetText, HasOneSign) {
  EXPECT_EQ(offset_text(1'500'000), "+2 ms");
  EXPECT_EQ(offset_text(0), "+0 ns");
  EXPECT_EQ(offset_text(-1'000'000), "-1 ms");
}

// A history that began late: what is replayed does not fail as the program did, with any setting.
TEST(WhatIfText, CreditsNoSettingWithWhatTheRecordedOneDoesAsWell) {
  WhatIfReport report;
  WhatIfDevice& d = report.devices.emplace_back();
  d.baseline = {1 << 20, 1};
  Prediction& p = d.predictions.emplace_back();
  p.conf = "max_split_size_mb:512";
  p.failures_avoided = 1;
  EXPECT_EQ(whatif_as_text(report, false).find("would fit"), std::string::npos);
  EXPECT_NE(whatif_as_text(report, false).find("cannot tell"), std::string::npos);
  p.failures_avoided = 2;
  EXPECT_NE(whatif_as_text(report, false).find("2 requests that failed would fit"),
            std::string::npos);
}

TEST(WhatIfText, LimitsThatDifferLookDifferent) {
  WhatIfReport report;
  WhatIfDevice& d = report.devices.emplace_back();
  d.baseline.reserved_peak = d.recorded_reserved_peak = 10ULL << 30;
  Prediction& p = d.predictions.emplace_back();
  p.out_of_memory = true;
  p.limit_bytes = 10ULL << 30;
  p.fits_below = p.most_limit_bytes = (10ULL << 30) + (12 << 20);
  const std::string text = whatif_as_text(report, false);
  EXPECT_NE(text.find("if the limit is 10.00 GiB; fits if it is at least 10.01 GiB"), text.npos)
      << text;
  EXPECT_NE(text.find("is between 10.00 GiB and 10.01 GiB"), text.npos) << text;
}

// What whatif concludes from one prediction, in MiB.
std::string conclusion(uint64_t recorded, uint64_t predicted, uint64_t cached_free,
                       uint64_t waiting = 0) {
  constexpr uint64_t kMiB = 1 << 20;
  WhatIfReport report;
  WhatIfDevice& d = report.devices.emplace_back();
  d.recorded_reserved_peak = recorded * kMiB;
  d.baseline.reserved_peak = recorded * kMiB;
  Prediction& p = d.predictions.emplace_back();
  p.conf = "expandable_segments:True";
  p.reserved_peak = predicted * kMiB;
  p.cached_free_at_peak = cached_free * kMiB;
  p.allocated_at_peak = (predicted - cached_free - waiting) * kMiB;
  return whatif_as_text(report, false);
}

// An older one ends with an error at a setting that it does not know.
TEST(WhatIfText, AdvisesNoSettingThatTheProgramMayNotKnow) {
  WhatIfReport report;
  WhatIfDevice& d = report.devices.emplace_back();
  d.recorded_reserved_peak = d.baseline.reserved_peak = 1000 << 20;
  Prediction& newer = d.predictions.emplace_back();
  newer.conf = "large_segment_size_mb:64";
  newer.needs_torch = "2.11";
  newer.reserved_peak = 600 << 20;
  Prediction& any = d.predictions.emplace_back();
  any.conf = "max_split_size_mb:64";
  any.reserved_peak = 900 << 20;
  const std::string text = whatif_as_text(report, false);
  EXPECT_NE(text.find("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64"), text.npos) << text;
  EXPECT_NE(text.find("Only with PyTorch 2.11 or later: large_segment_size_mb:64 would save"),
            text.npos)
      << text;
  EXPECT_EQ(text.find("CONF=large_segment_size_mb"), text.npos) << text;
}

TEST(WhatIfText, SaysThatTheBestSettingCostsMore) {
  const std::string more = conclusion(10'000, 12'000, 8'000);
  EXPECT_NE(more.find("the best of them, expandable_segments:True, would reserve 2.0 GiB more"),
            std::string::npos)
      << more;
  EXPECT_EQ(more.find("would stay cached"), std::string::npos) << more;
}

TEST(WhatIfText, ConcludesWhatItsTableShows) {
  EXPECT_NE(conclusion(10'000, 9'990, 10).find("the memory is in use, not lost in holes"),
            std::string::npos);
  const std::string free = conclusion(10'000, 9'990, 1'024);
  EXPECT_EQ(free.find("in use, not lost"), std::string::npos) << free;
  EXPECT_NE(free.find("even with expandable_segments:True, 1.0 GiB would stay cached and free"),
            std::string::npos)
      << free;
  EXPECT_NE(conclusion(10'000, 9'990, 1'024, 2'048).find("2.0 GiB waits for other streams"),
            std::string::npos);
  // 0.96 % is shown as 1.0 %.
  const std::string one = conclusion(10'000, 9'904, 0);
  EXPECT_NE(one.find("1.0 %"), std::string::npos) << one;
  EXPECT_EQ(one.find("None of these"), std::string::npos) << one;
  const std::string less = conclusion(10'000, 9'906, 0);
  EXPECT_NE(less.find("0.9 %"), std::string::npos) << less;
  EXPECT_NE(less.find("None of these"), std::string::npos) << less;
}

}  // namespace
}  // namespace tidemark
