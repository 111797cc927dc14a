// Pages of numbers in both text formats.
#include "collector/serve/open_metrics.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

constexpr Metric kUsed = {"card_used_bytes", Metric::Type::kGauge, "bytes", "In use."};
constexpr Metric kErrors = {"errors", Metric::Type::kCounter, "", "Failures."};
constexpr Metric kCard = {"card", Metric::Type::kLabels, "", "Its name."};

MetricPage example() {
  MetricPage page;
  page.add(kUsed, {{"pid", "7"}}, uint64_t{18446744073709551615U});
  page.add(kErrors, {}, uint64_t{3});
  page.add(kUsed, {{"job", "a\"b\\c\nd"}, {"pid", "8"}}, 0.25);
  page.add(kCard, {{"name", "H200"}}, uint64_t{1});
  return page;
}

TEST(MetricPage, OpenMetrics) {
  EXPECT_EQ(example().open_metrics(),
            "# HELP card_used_bytes In use.\n"
            "# TYPE card_used_bytes gauge\n"
            "# UNIT card_used_bytes bytes\n"
            "card_used_bytes{pid=\"7\"} 18446744073709551615\n"
            "card_used_bytes{job=\"a\\\"b\\\\c\\nd\",pid=\"8\"} 0.25\n"
            "# HELP errors Failures.\n"
            "# TYPE errors counter\n"
            "errors_total 3\n"
            "# HELP card Its name.\n"
            "# TYPE card info\n"
            "card_info{name=\"H200\"} 1\n"
            "# EOF\n");
}

TEST(MetricPage, PlainText) {
  EXPECT_EQ(example().plain_text(),
            "# HELP card_used_bytes In use.\n"
            "# TYPE card_used_bytes gauge\n"
            "card_used_bytes{pid=\"7\"} 18446744073709551615\n"
            "card_used_bytes{job=\"a\\\"b\\\\c\\nd\",pid=\"8\"} 0.25\n"
            "# HELP errors_total Failures.\n"
            "# TYPE errors_total counter\n"
            "errors_total 3\n"
            "# HELP card_info Its name.\n"
            "# TYPE card_info gauge\n"
            "card_info{name=\"H200\"} 1\n");
  EXPECT_EQ(MetricPage().open_metrics(), "# EOF\n");
}

TEST(MetricPage, LabelsAreUtf8) {
  EXPECT_EQ(escaped_label("größe €\U0001f600"), "größe €\U0001f600");
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(escaped_label("a\xff"
                          "b"),
            "a" + bad + "b");
  EXPECT_EQ(escaped_label("\xc3"), bad);                      // cut
  EXPECT_EQ(escaped_label("\xc0\xaf"), bad + bad);            // overlong
  EXPECT_EQ(escaped_label("\xed\xa0\x80"), bad + bad + bad);  // a surrogate
  EXPECT_EQ(escaped_label("\xf4\x90\x80\x80").size(), 12U);   // beyond the last character
  EXPECT_EQ(escaped_label(std::string_view("\0\r\t", 3)), std::string_view("\0\r\t", 3));
}

}  // namespace
}  // namespace tidemark
