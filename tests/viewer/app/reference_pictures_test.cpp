// Compares pictures of recorded traces with those in tests/data/pictures.
//
//   reference_pictures_test            compares
//   reference_pictures_test --update   draws them again; look at each before committing it
//
// A picture that differs is written to seen_pictures in the build directory. The font is ImGui's
// built-in one, so that text has the same size everywhere. Renderers differ in the edges of lines,
// so pictures are compared after averaging squares of kCell pixels.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#include "stb_image.h"
#include "tests/support/serving_story.h"
#include "viewer/app/headless.h"
#include "viewer/app/shell.h"
#include "viewer/model/trace/loader.h"
#include "viewer/widgets/fonts.h"

namespace tidemark::view {
namespace {

constexpr int kWidth = 960;
constexpr int kHeight = 600;
constexpr int kCell = 8;
constexpr int kTolerance = 14;     // of 255, in the mean of a cell
constexpr int kCellsAllowed = 10;  // of 9,000

bool update = false;

struct Picture {
  const char* name;
  const char* trace;
  const char* panel;  // null: the whole window
  bool dark = true;
  const char* second = nullptr;
  bool curves = false;
};

constexpr const char* kServing = "(told)";  // a story instead of a file
constexpr const char* kLayers = "(24 layers)";
// With free memory in private pools.
constexpr const char* kGraphs = "../../tests/data/snapshots/graphs.pickle.gz";

constexpr Picture kPictures[] = {
    {"window_training", "torch/training.tier2.tmk", nullptr},
    {"window_out_of_memory_light", "torch/out_of_memory.tier2.tmk", nullptr, false},
    {"window_cuda", "train", nullptr},
    {"timeline_streams", "torch/streams.tier2.tmk", "timeline"},
    {"timeline_ranks_light", "ranks/ddp2", "timeline", false},
    {"map_out_of_memory", "torch/out_of_memory.tier2.tmk", "map"},
    {"map_cuda_light", "pool_holes", "map", false},
    {"flame_training_light", "torch/training.tier2.tmk", "flame", false},
    {"tables_training", "torch/training.tier2.tmk", "tables"},
    {"moment_training", "torch/training.tier2.tmk", "moment"},
    {"findings_guilty", "ranks/guilty4", "findings"},
    {"ranks_guilty", "ranks/guilty4", "ranks"},
    {"ranks_guilty_light", "ranks/guilty4", "ranks", false},
    {"ranks_curves", "ranks/guilty4", "ranks", true, nullptr, true},
    {"compare_traces", "torch/training.tier2.tmk", "compare", true,
     "torch/mixed_precision.tier2.tmk"},
    {"timeline_two_traces", "torch/training.tier2.tmk", "timeline", true,
     "torch/mixed_precision.tier2.tmk"},
    {"flame_bottom_up", "torch/training.tier2.tmk", "flame:flame:bottom-up"},
    {"flame_rows_light", "torch/training.tier2.tmk", "flame:rows", false},
    {"map_by_age", "torch/training.tier2.tmk", "map:age"},
    {"tables_kernels_light", "train", "tables:kernels", false},
    {"window_two_traces", "torch/training.tier2.tmk", nullptr, true,
     "torch/mixed_precision.tier2.tmk"},
    {"timeline_by_event_light", "torch/training.tier2.tmk", "timeline:events", false},
    {"map_asleep", kServing, "map:stack"},
    {"map_asleep_light", kServing, "map:stack", false},
    {"moment_asleep_and_pinned", kServing, "moment"},
    {"stack_training_light", "torch/training.tier2.tmk", "stack:block:events", false},
    {"stack_training_category", "torch/training.tier2.tmk", "stack:category:events"},
    {"stack_mixed_line_light", "torch/mixed_precision.tier2.tmk", "stack:line:life:events", false},
    {"stack_expandable_segments", "torch/expandable.tier2.tmk", "stack:segment:events"},
    {"stack_streams_light", "torch/streams.tier2.tmk", "stack:stream:events", false},
    {"stack_graphs", "torch/graphs.tier2.tmk", "stack:block:events"},
    {"stack_inference_light", "torch/inference.tier2.tmk", "stack:line:events", false},
    {"stack_compiled", "torch/compiled.tier2.tmk", "stack:category:events"},
    {"stack_out_of_memory_light", "torch/out_of_memory.tier2.tmk", "stack", false},
    {"stack_threads", "torch/threads.tier2.tmk", "stack:block:life:events"},
    {"stack_cuda_owners_light", "train", "stack:owner", false},
    {"stack_guilty", "ranks/guilty4", "stack:line"},
    {"stack_pool_holes_light", "pool_holes", "stack", false},
    {"stack_two_traces", "torch/training.tier2.tmk", "stack:category", true,
     "torch/mixed_precision.tier2.tmk"},
    {"stack_steps_light", "torch/training.tier2.tmk", "stack:steps:category", false},
    {"timeline_stacked", "torch/training.tier2.tmk", "timeline:stacked:events"},
    {"flame_modules_light", kLayers, "flame:module", false},
    {"tables_modules", kLayers, "tables:modules"},
    {"map_modules_light", kLayers, "map:module", false},
    {"stack_modules", kLayers, "stack:module:events"},
    {"map_graph_pools_light", kGraphs, "map", false},
    {"stack_graph_segments", kGraphs, "stack:segment:events"},
};

void PrintTo(const Picture& p, std::ostream* out) {
  *out << p.name;
}

std::string path_of(const Picture& p) {
  return std::string(TIDEMARK_TEST_DATA) + "/pictures/" + p.name + ".png";
}

std::shared_ptr<const Model> load(const char* trace) {
  if (trace == kServing) return told_model(tell_serving);
  if (trace == kLayers) {
    test::TransformerShape shape;
    shape.layers = 24;
    shape.width = 1024;
    shape.words = 32000;
    shape.seq = 1024;
    shape.card = uint64_t{256} << 30;
    return layered_model(shape);
  }
  auto model = load_model(std::string(TIDEMARK_TRACES) + "/" + trace);
  return model ? *model : nullptr;
}

Image draw(const Picture& p, const std::function<void(Shell&)>& prepare = {}) {
  auto headless = Headless::create(kWidth, kHeight, p.dark, 1, FontSource::kBuiltIn);
  if (!headless) return {};
  const auto model = load(p.trace);
  if (model == nullptr) return {};
  Shell shell((Config()));
  shell.panels().be_patient();
  shell.set_model(model);
  if (p.second != nullptr) {
    shell.selection().go_to_peak(*model);
    shell.set_other(load(p.second));
  }
  if (p.panel != nullptr && !shell.show_only(p.panel)) return {};
  shell.panels().ranks.curves = p.curves;
  if (prepare) prepare(shell);
  return (*headless)->render([&] { shell.draw(); });
}

Image read_png(const std::string& path) {
  Image image;
  int channels = 0;
  unsigned char* pixels = stbi_load(path.c_str(), &image.width, &image.height, &channels, 4);
  if (pixels == nullptr) return {};
  image.rgba.assign(pixels, pixels + size_t{4} * static_cast<size_t>(image.width * image.height));
  stbi_image_free(pixels);
  return image;
}

// The number of squares whose mean colour differs; -1 when the sizes differ.
int cells_apart(const Image& a, const Image& b) {
  if (a.width != b.width || a.height != b.height || a.width == 0) return -1;
  int apart = 0;
  for (int y = 0; y + kCell <= a.height; y += kCell) {
    for (int x = 0; x + kCell <= a.width; x += kCell) {
      int worst = 0;
      for (int c = 0; c < 3; ++c) {
        int sum = 0;
        for (int i = 0; i < kCell * kCell; ++i) {
          const int px = x + i % kCell;
          const int py = y + i / kCell;
          sum += a.at(px, py)[c] - b.at(px, py)[c];
        }
        worst = std::max(worst, std::abs(sum) / (kCell * kCell));
      }
      if (worst > kTolerance) ++apart;
    }
  }
  return apart;
}

#define TIDEMARK_NEED_PIXELS()            \
  if (!Headless::create(64, 64, true, 1)) \
  GTEST_SKIP() << "OpenGL is not available without a display"

class ReferencePictures : public testing::TestWithParam<Picture> {};

TEST_P(ReferencePictures, AreUnchanged) {
  TIDEMARK_NEED_PIXELS();
  const Image now = draw(GetParam());
  ASSERT_EQ(now.width, kWidth);
  if (update) {
    std::filesystem::create_directories(std::filesystem::path(path_of(GetParam())).parent_path());
    ASSERT_TRUE(write_png(now, path_of(GetParam())));
    return;
  }
  const Image kept = read_png(path_of(GetParam()));
  const int apart = cells_apart(now, kept);
  EXPECT_TRUE(apart >= 0 && apart <= kCellsAllowed)
      << apart << " cells differ from " << path_of(GetParam())
      << "; if this is intended, run this test with --update and look at the picture";
  if (apart >= 0 && apart <= kCellsAllowed) return;
  const std::filesystem::path folder = TIDEMARK_SEEN_PICTURES;
  std::filesystem::create_directories(folder);
  const std::string seen = (folder / (std::string(GetParam().name) + ".png")).string();
  if (write_png(now, seen)) std::printf("what was drawn: %s\n", seen.c_str());
}

INSTANTIATE_TEST_SUITE_P(All, ReferencePictures, testing::ValuesIn(kPictures),
                         [](const auto& p) { return std::string(p.param.name); });

// The comparison sees what a person would see: each of these must differ clearly from the stored
// picture.
TEST(ReferencePictureMeasure, SeesAMissingCurve) {
  TIDEMARK_NEED_PIXELS();
  const Picture& p = kPictures[3];
  const Image whole = draw(p);
  for (const Curve c : {Curve::kAllocated, Curve::kReserved}) {
    const Image without = draw(p, [c](Shell& shell) {
      shell.panels().timeline.options.shown[static_cast<size_t>(c)] = false;
    });
    EXPECT_GT(cells_apart(whole, without), kCellsAllowed) << "curve " << static_cast<int>(c);
  }
}

TEST(ReferencePictureMeasure, SeesAMissingPanelAndAMissingRank) {
  TIDEMARK_NEED_PIXELS();
  const Image window = draw(kPictures[0]);
  Picture alone = kPictures[0];
  alone.panel = "map";
  EXPECT_GT(cells_apart(window, draw(alone)), kCellsAllowed);
  Picture ranks = kPictures[11];
  const Image four = draw(ranks);
  ranks.trace = "ranks/ddp4";
  EXPECT_GT(cells_apart(four, draw(ranks)), kCellsAllowed);
  const Image relative =
      draw(kPictures[11], [](Shell& shell) { shell.panels().ranks.options.relative = true; });
  EXPECT_GT(cells_apart(four, relative), kCellsAllowed);
}

TEST(ReferencePictureMeasure, OverlooksTheGrainOfRenderers) {
  TIDEMARK_NEED_PIXELS();
  const Image image = draw(kPictures[3]);
  ASSERT_EQ(image.width, kWidth);
  EXPECT_EQ(cells_apart(image, image), 0);
  Image grain = image;
  uint32_t state = 1;
  for (uint8_t& v : grain.rgba) {
    state = state * 1664525 + 1013904223;
    v = static_cast<uint8_t>(std::clamp(int{v} + static_cast<int>(state >> 28) - 8, 0, 255));
  }
  EXPECT_LE(cells_apart(image, grain), kCellsAllowed);
}

}  // namespace
}  // namespace tidemark::view

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--update") == 0) tidemark::view::update = true;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
