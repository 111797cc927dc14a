// The table of layers: of trees made here, and of a model with 24 layers.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "analysis/insight/module_tree.h"
#include "analysis/report/diff.h"
#include "analysis/report/report.h"
#include "export/report/diff_text.h"
#include "export/report/layer_table.h"
#include "tests/support/transformer_run.h"

namespace tidemark {
namespace {

using test::TransformerRun;
using test::TransformerShape;

ModulePart part(std::string path, uint64_t bytes, std::string class_name = "Part") {
  return {std::move(path), std::move(class_name), {bytes}};
}

std::vector<std::string> paths_of(std::span<const ModuleRow> rows) {
  std::vector<std::string> paths;
  for (const ModuleRow& row : rows) paths.push_back(row.path);
  return paths;
}

uint64_t bytes_of(const ModuleRow& row) {
  return std::accumulate(row.amounts.begin(), row.amounts.end(), uint64_t{0});
}

using Paths = std::vector<std::string>;

TEST(ModuleTree, NeighboursThatAreAlikeShareARow) {
  const std::vector<ModulePart> parts = {part("layers.0.mlp", 100), part("layers.0.norm", 20),
                                         part("layers.1.mlp", 100), part("layers.1.norm", 20),
                                         part("layers.2.mlp", 900), part("layers.3.mlp", 100),
                                         part("layers.4.mlp", 100), part("embed", 50)};
  const std::vector<ModuleRow> rows = module_tree(parts);
  EXPECT_EQ(paths_of(rows), (Paths{"layers", "layers.0-1", "layers.0-1.mlp", "layers.0-1.norm",
                                   "layers.2.mlp", "layers.3-4.mlp", "embed"}));
  EXPECT_EQ(rows[0].amounts[0], 1340U);
  EXPECT_EQ(rows[1].amounts[0], 240U);
  EXPECT_EQ(rows[1].modules, (Paths{"layers.0", "layers.1"}));
  EXPECT_EQ(rows[2].modules, (Paths{"layers.0.mlp", "layers.1.mlp"}));
  EXPECT_EQ(rows[0].end, 6U);
  EXPECT_EQ(name_in_parent(rows, 4), "2.mlp");
}

TEST(ModuleTree, OnlyNumbersNextToEachOtherOfOneClass) {
  EXPECT_EQ(paths_of(module_tree(std::vector{part("net.0", 8, "Linear"), part("net.2", 8, "Linear"),
                                             part("net.1", 8, "ReLU")})),
            (Paths{"net", "net.0", "net.1", "net.2"}));
  EXPECT_EQ(paths_of(module_tree(
                std::vector{part("block_08.a", 8), part("block_09.a", 8), part("block_10.a", 8)})),
            (Paths{"block_08-10.a"}));
  EXPECT_EQ(paths_of(module_tree(std::vector{part("a1", 8), part("a01", 8), part("", 9)})).size(),
            3U);
}

// Hostile input: deep, empty and odd paths.
TEST(ModuleTree, NothingIsLostOfAnyPath) {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, uint64_t> parts;
    for (int i = 0; i < 30; ++i) {
      std::string path;
      for (uint64_t n = rng() % 12; n > 0; --n) path += ".a01"[rng() % 4];
      parts[path] = 1 + rng() % 100;
    }
    std::string deep;
    for (int i = 0; i < 5000; ++i) deep += "a.";
    parts[deep] = 7;
    std::vector<ModulePart> list;
    uint64_t all = 0;
    for (const auto& [path, bytes] : parts) {
      list.push_back(part(path, bytes));
      all += bytes;
    }
    uint64_t found = 0;
    const std::vector<ModuleRow> rows = module_tree(list);
    for (size_t i = 0; i < rows.size(); i = rows[i].end) found += bytes_of(rows[i]);
    ASSERT_EQ(found, all);
    for (size_t i = 0; i < rows.size(); ++i) {
      uint64_t inside = 0;
      for (size_t k = i + 1; k < rows[i].end; k = rows[k].end) inside += bytes_of(rows[k]);
      ASSERT_LE(inside, bytes_of(rows[i]));
    }
  }
}

const DeviceReport& device_of(const Report& report) {
  return report.ranks.front().devices.front();
}

const ModuleRow* row_of(const DeviceReport& device, const std::string& path) {
  const auto found = std::find_if(device.layers.begin(), device.layers.end(),
                                  [&](const ModuleRow& row) { return row.path == path; });
  return found == device.layers.end() ? nullptr : &*found;
}

// Of a usual size: what the allocator adds to a block is little.
TransformerShape with_24_layers() {
  TransformerShape shape;
  shape.layers = 24;
  shape.width = 1024;
  shape.words = 32000;
  shape.seq = 1024;
  shape.card = uint64_t{256} << 30;
  return shape;
}

TEST(Layers, OfAModelWith24) {
  const TransformerShape shape = with_24_layers();
  const TransformerRun run(shape);
  const Report report = *make_report(run.model(), {});
  const DeviceReport& device = device_of(report);
  const ModuleRow* const layers = row_of(device, "layers.0-23");
  ASSERT_TRUE(layers) << testing::PrintToString(layer_lines(device, 100));
  EXPECT_EQ(layers->modules.size(), 24U);
  const uint64_t weights = 24 * (11 * shape.width * shape.width + shape.width) * 4;
  const auto amount = [](const ModuleRow& row, ModuleUse use) {
    return row.amounts[static_cast<size_t>(use)];
  };
  EXPECT_NEAR(static_cast<double>(amount(*layers, ModuleUse::kParameter)),
              static_cast<double>(weights), 0.01 * static_cast<double>(weights));
  // As much as its nn.Modules hold one by one.
  ModuleAmounts sums{};
  for (const ModuleShare& m : device.modules) {
    if (!m.module.starts_with("layers.")) continue;
    sums[0] += m.parameter_bytes;
    sums[1] += m.gradient_bytes;
    sums[2] += m.optimizer_bytes;
    sums[3] += m.kept_bytes;
    sums[4] += m.transient_bytes;
  }
  EXPECT_EQ(layers->amounts, sums);
  const ModuleRow* const up = row_of(device, "layers.0-23.up");
  ASSERT_TRUE(up);
  EXPECT_EQ(up->modules.size(), 24U);
  uint64_t all = 0;
  for (size_t i = 0; i < device.layers.size(); i = device.layers[i].end) {
    all += bytes_of(device.layers[i]);
  }
  EXPECT_EQ(all, device.at_totals.allocated);
  // In the backward pass of "act" four times the hidden values are passed on.
  const ModuleRow* const act = row_of(device, "layers.0-23.act");
  ASSERT_TRUE(act);
  EXPECT_GE(act->peak, 4 * 4 * shape.batch * shape.seq * shape.width);
  EXPECT_LT(act->peak, 2 * 4 * 4 * shape.batch * shape.seq * shape.width);

  const std::vector<std::string> lines = layer_lines(device, 120);
  EXPECT_LT(lines.size(), 20U);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("layers.0-23  24 x ") != line.npos;
  }));
}

TEST(Layers, DifferencesOfAll) {
  TransformerShape shape = with_24_layers();
  const TransformerRun before(shape);
  shape.batch *= 2;
  const TransformerRun after(shape);
  const Report a = *make_report(before.model(), {});
  const Report b = *make_report(after.model(), {});
  const Result<Diff> diff = compare(a, b);
  ASSERT_TRUE(diff);
  const std::vector<ModuleRow>& rows = diff->devices.front().layers;
  const auto layers = std::find_if(rows.begin(), rows.end(),
                                   [](const ModuleRow& row) { return row.path == "layers.0-23"; });
  ASSERT_NE(layers, rows.end());
  EXPECT_EQ(layers->amounts[0], bytes_of(*row_of(device_of(a), "layers.0-23")));
  EXPECT_EQ(layers->amounts[1], bytes_of(*row_of(device_of(b), "layers.0-23")));
  const std::string text = diff_as_text(*diff, {});
  EXPECT_NE(text.find("layers.0-23"), text.npos) << text;
  EXPECT_EQ(text.find("layers.7"), text.npos) << text;
}

}  // namespace
}  // namespace tidemark
