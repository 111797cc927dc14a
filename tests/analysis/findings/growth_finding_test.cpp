// Findings that mean that a longer run needs more memory, and look-alikes that do not.
#include "analysis/report/growth_finding.h"

#include <gtest/gtest.h>

#include "tests/support/story.h"

namespace tidemark {
namespace {

Finding made(const char* id, const char* severity, const char* evidence = "") {
  Finding f;
  f.id = id;
  f.severity = severity;
  f.rank = 0;
  if (*evidence != '\0') f.evidence.emplace_back(evidence, 1);
  return f;
}

TEST(GrowthFinding, IsOfMemoryThatStaysFromStepToStep) {
  EXPECT_TRUE(tells_growth(made("creep", kWarning)));
  EXPECT_TRUE(tells_growth(made("retained_graph", kWarning, "growth_bytes_per_step")));
  EXPECT_TRUE(tells_growth(made("retained_graph", kError, "bytes_per_step")));
  EXPECT_TRUE(tells_growth(made("eval_keeps_graph", kError, "growing_passes")));
  EXPECT_TRUE(tells_growth(made("kept_by_error", kError)));
  EXPECT_FALSE(tells_growth(made("creep", kInfo)));
  EXPECT_FALSE(tells_growth(made("retained_graph", kWarning, "bytes_per_pass")));
  EXPECT_FALSE(tells_growth(made("eval_keeps_graph", kWarning, "peak_bytes")));
  EXPECT_FALSE(tells_growth(made("accumulated_graphs", kError)));
}

TEST(GrowthFinding, ConcernsItsDevice) {
  const std::vector<Finding> findings = {made("capacity", kError), made("creep", kError)};
  EXPECT_EQ(growth_on(findings, 0, 7, "", 0), &findings[1]);
  EXPECT_EQ(growth_on(findings, 0, 7, "", 1), nullptr);
  EXPECT_EQ(growth_on(findings, 1, 7, "", 0), nullptr);
}

TEST(GrowthFinding, ConcernsItsFile) {
  std::vector<Finding> findings = {made("creep", kError)};
  findings[0].rank = -1;
  findings[0].file = "a.pickle";
  EXPECT_EQ(growth_on(findings, -1, 0, "a.pickle", 0), &findings[0]);
  EXPECT_EQ(growth_on(findings, -1, 0, "b.pickle", 0), nullptr);
}

// A server without no_grad(), of whose results each refers to the graphs of those before it.
// `kept`: of how many requests at a time; it fails in the last one.
Trace served(size_t kept) {
  return Trace([kept](Story& s, uint32_t) {
    for (const uint64_t mib : {3U, 4U, 5U, 6U}) s.alloc(mib * kMiB, s.setup());
    std::vector<std::vector<uint64_t>> graphs;
    for (int request = 0; request < 12; ++request) {
      const uint64_t input = s.alloc(kMiB, s.stack({"serve serve.py:8"}));
      std::vector<uint64_t>& graph = graphs.emplace_back();
      for (uint64_t layer = 0; layer < 8; ++layer) {
        for (int line = 1; line <= 5; ++line) {
          graph.push_back(
              s.alloc((4 + layer % 3) * kMiB,
                      s.stack({"forward model.py:" + std::to_string(line),
                               "_call_impl torch/nn/modules/module.py:1", "forward model.py:90",
                               "_call_impl torch/nn/modules/module.py:1", "serve serve.py:10"})));
        }
      }
      s.free(input);
      if (request == 11) s.run_out(64 * kMiB, 0, s.stack({"serve serve.py:8"}));
      if (graphs.size() <= kept) continue;
      for (const uint64_t block : graphs.front()) s.free(block);
      graphs.erase(graphs.begin());
    }
  });
}

TEST(GrowthFinding, GraphsThatAServerKeepsGrowUnlessTheNextReplacesThem) {
  EXPECT_TRUE(tells_growth(served(12).finding("eval_keeps_graph")));
  const Finding replaced = served(1).finding("eval_keeps_graph");
  EXPECT_EQ(replaced.id, "eval_keeps_graph");
  EXPECT_FALSE(tells_growth(replaced));
}

}  // namespace
}  // namespace tidemark
