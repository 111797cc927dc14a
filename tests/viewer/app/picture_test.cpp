// Pictures of recorded traces, drawn without a display. The checks hold for every version of Mesa:
// where the curves, the marks and the text are, not single pixels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tests/support/synthetic_trace.h"
#include "viewer/app/headless.h"
#include "viewer/app/shell.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {
namespace {

bool near(const uint8_t* p, Rgb c, int tolerance) {
  return std::abs(p[0] - c.r) <= tolerance && std::abs(p[1] - c.g) <= tolerance &&
         std::abs(p[2] - c.b) <= tolerance;
}

// The share of a region's pixels that have about this colour.
double share_of(const Image& image, Rgb colour, float x0, float y0, float x1, float y1,
                int tolerance = 24) {
  int hits = 0;
  int all = 0;
  for (int y = static_cast<int>(y0 * static_cast<float>(image.height));
       y < static_cast<int>(y1 * static_cast<float>(image.height)); ++y) {
    for (int x = static_cast<int>(x0 * static_cast<float>(image.width));
         x < static_cast<int>(x1 * static_cast<float>(image.width)); ++x) {
      hits += near(image.at(x, y), colour, tolerance) ? 1 : 0;
      ++all;
    }
  }
  return static_cast<double>(hits) / all;
}

class Pictures : public testing::Test {
 protected:
  // Empty when OpenGL is not available; the test is skipped then.
  Image draw(const std::string& snapshot, int width, int height, const std::string& panel = "",
             bool dark = true, float scale = 1) {
    const auto model =
        load_model(std::string(TIDEMARK_TEST_DATA) + "/snapshots/" + snapshot + ".pickle.gz");
    EXPECT_TRUE(model);
    return draw_model(*model, width, height, panel, dark, scale);
  }

  static Image draw_model(const std::shared_ptr<const Model>& model, int width, int height,
                          const std::string& panel = "", bool dark = true, float scale = 1) {
    const auto headless = Headless::create(width, height, dark, scale);
    if (!headless) return {};
    Shell shell((Config()));
    shell.set_model(model);
    if (!panel.empty() && !shell.show_only(panel)) ADD_FAILURE() << "no panel " << panel;
    return (*headless)->render([&] { shell.draw(); });
  }
};

#define TIDEMARK_NEED_PIXELS(image) \
  if ((image).rgba.empty()) GTEST_SKIP() << "OpenGL is not available without a display"

TEST_F(Pictures, TimelineOfARunOutOfMemory) {
  const Image image = draw("oom_fraction", 1000, 600, "timeline");
  TIDEMARK_NEED_PIXELS(image);
  const Theme t = theme();
  // The allocated curve climbs from the lower left to the upper right.
  const double left = share_of(image, t.allocated, 0.10F, 0.25F, 0.30F, 0.98F, 30);
  const double right = share_of(image, t.allocated, 0.70F, 0.25F, 0.90F, 0.60F, 30);
  EXPECT_GT(left, 0.0005);
  EXPECT_GT(right, 0.0005);
  EXPECT_LT(share_of(image, t.allocated, 0.10F, 0.30F, 0.30F, 0.60F, 30), left);
  // The error is a red line near the right end, and nowhere else.
  EXPECT_GT(share_of(image, t.bad, 0.93F, 0.30F, 1.0F, 1.0F, 40), 0.004);
  EXPECT_EQ(share_of(image, t.bad, 0.10F, 0.40F, 0.80F, 1.0F, 24), 0) << "below the limit's line";
  EXPECT_GT(share_of(image, t.reserved, 0.1F, 0.2F, 1.0F, 0.95F, 30), 0.0005);
}

TEST_F(Pictures, MapIsFullOfBlocksAndHoles) {
  const Image image = draw("default", 900, 500, "map");
  TIDEMARK_NEED_PIXELS(image);
  const Theme t = theme();
  const double ground = share_of(image, t.panel, 0.2F, 0.3F, 0.95F, 0.95F, 10);
  EXPECT_LT(ground, 0.55) << "blocks and holes cover most of it";
  EXPECT_GT(share_of(image, t.warning, 0.15F, 0.2F, 1.0F, 1.0F, 50), 0.0003)
      << "the largest hole is marked";
}

TEST_F(Pictures, FlameIsWideAtTheTopAndNarrowBelow) {
  const Image image = draw("default", 1000, 600, "flame");
  TIDEMARK_NEED_PIXELS(image);
  const Rgb panel = theme().panel;
  const double top = share_of(image, panel, 0, 0.12F, 1, 0.25F, 10);
  const double bottom = share_of(image, panel, 0, 0.75F, 1, 0.95F, 10);
  EXPECT_LT(top, bottom);
}

TEST_F(Pictures, LightAndDarkAreLightAndDark) {
  const Image dark = draw("late", 640, 480);
  TIDEMARK_NEED_PIXELS(dark);
  EXPECT_GT(share_of(dark, theme().panel, 0, 0, 1, 1, 12), 0.2);
  const Image light = draw("late", 640, 480, "", false);
  EXPECT_GT(share_of(light, theme().panel, 0, 0, 1, 1, 12), 0.2);
  EXPECT_TRUE(is_light(theme().panel));
}

TEST_F(Pictures, LossesAreAlwaysVisible) {
  const Image image = draw("late", 1200, 800);
  TIDEMARK_NEED_PIXELS(image);
  EXPECT_GT(share_of(image, theme().warning, 0, 0.02F, 0.2F, 0.07F, 50), 0.002)
      << "the strip below the menu names what is missing";
}

TEST_F(Pictures, EverySizeAndEveryPanel) {
  for (const char* panel :
       {"", "timeline", "map", "flame", "tables", "moment", "findings", "block"}) {
    const Image small = draw("expandable", 640, 480, panel);
    TIDEMARK_NEED_PIXELS(small);
    // Something is drawn: it is not all one colour.
    EXPECT_LT(share_of(small, theme().panel, 0, 0, 1, 1, 2), 0.995) << panel;
  }
  const Image large = draw("graphs", 3840, 2160, "", true, 2);
  EXPECT_EQ(large.rgba.size(), size_t{3840} * 2160 * 4);
}

TEST_F(Pictures, ManyRanks) {
  SyntheticOptions options;
  options.ranks = 32;
  options.events = 2'000;
  auto made = make_model(synthetic_model(options), {});
  const Image image = draw_model(std::shared_ptr<const Model>(std::move(*made)), 1200, 900);
  TIDEMARK_NEED_PIXELS(image);
  EXPECT_GT(share_of(image, theme().allocated, 0.05F, 0.1F, 1, 0.5F, 30), 0.002);
}

TEST_F(Pictures, SameInputGivesTheSamePicture) {
  const Image a = draw("streams", 640, 480);
  TIDEMARK_NEED_PIXELS(a);
  const Image b = draw("streams", 640, 480);
  EXPECT_EQ(a.rgba, b.rgba);
}

}  // namespace
}  // namespace tidemark::view
