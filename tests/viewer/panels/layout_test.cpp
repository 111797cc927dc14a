// Unusual traces in unusual windows: nothing crashes, no text is cut off and no text overlaps
// another.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"
#include "viewer/model/trace/loader.h"

namespace tidemark::view {
namespace {

namespace fs = std::filesystem;

struct Size {
  float width;
  float height;
  float scale;
};

constexpr Size kSizes[] = {{640, 480, 1}, {1280, 800, 1}, {3840, 2160, 1}, {3840, 2160, 2}};

class Layout : public Interaction {
 protected:
  Layout()
      : folder_(fs::temp_directory_path() / ("tidemark-layout-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    shell_->panels().be_patient();
  }
  ~Layout() override { fs::remove_all(folder_); }

  void resize(const Size& size) {
    ImGuiIO& io = ImGui::GetIO();
    io.DisplaySize = {size.width, size.height};
    apply_theme(true, size.scale);
    load_fonts(size.scale, FontSource::kBuiltIn);
    unsigned char* pixels = nullptr;
    int width = 0;
    int height = 0;
    io.Fonts->GetTexDataAsRGBA32(&pixels, &width, &height);
  }

  // Every panel alone and all of them together, at every size.
  void check(const std::shared_ptr<const Model>& model, const std::string& what) {
    ASSERT_NE(model, nullptr) << what;
    for (const Size& size : kSizes) {
      resize(size);
      for (const char* panel : {"", "timeline", "map", "flame", "tables", "moment", "findings",
                                "ranks", "compare", "block"}) {
        shell_ = std::make_unique<Shell>(Config());
        shell_->panels().be_patient();
        shell_->set_model(model);
        const bool alone = *panel != '\0';
        ASSERT_TRUE(!alone || shell_->show_only(panel));
        frame(6);
        const std::vector<Letter> letters = drawn_letters();
        const std::string place = what + ", " + (alone ? panel : "window") + " at " +
                                  std::to_string(static_cast<int>(size.width)) + " x " +
                                  std::to_string(static_cast<int>(size.scale));
        EXPECT_GT(letters.size(), 10U) << place << ": hardly any text";
        report(cut_letters(letters), place + ": cut");
        report(covered_letters(letters), place + ": overlapping");
        EXPECT_EQ(glued_units(letters), std::vector<std::string>()) << place;
      }
    }
  }
  static void report(const std::vector<Letter>& letters, const std::string& what) {
    if (letters.empty()) return;
    const Letter& l = letters.front();
    ADD_FAILURE() << what << ": " << letters.size() << " letters, the first in '" << l.window
                  << "' at " << l.box.Min.x << ", " << l.box.Min.y;
  }

  std::shared_ptr<const Model> load(const std::string& path) {
    auto model = load_model(path);
    return model ? *model : nullptr;
  }
  static std::string recorded(const std::string& name) {
    return std::string(TIDEMARK_TRACES) + "/" + name;
  }
  static bool losses_say(const Model& model, const std::string& text) {
    return std::any_of(model.losses.begin(), model.losses.end(), [&](const std::string& loss) {
      return loss.find(text) != std::string::npos;
    });
  }

  fs::path folder_;
};

TEST_F(Layout, NoEvents) {
  auto made = make_model(TraceModel(), {});
  ASSERT_TRUE(made);
  check(std::shared_ptr<const Model>(std::move(*made)), "no events");
}

TEST_F(Layout, OneEvent) {
  SyntheticOptions options;
  options.events = 1;
  options.oom = false;
  options.marks = false;
  check(model_of(options), "one event");
}

TEST_F(Layout, AThousandRanks) {
  SyntheticOptions options;
  options.events = 40;
  options.ranks = 1000;
  check(model_of(options), "a thousand ranks");
}

TEST_F(Layout, RecordedRunsOfEveryKind) {
  for (const char* name : {"torch/out_of_memory.tier2.tmk", "torch/training.tier2.tmk", "train",
                           "ranks/guilty4", "all_kinds"}) {
    check(load(recorded(name)), name);
  }
}

TEST_F(Layout, CutOffInTheMiddle) {
  const std::string whole = recorded("torch/training.tier2.tmk");
  const std::string cut = (folder_ / "cut.tmk").string();
  fs::copy_file(whole, cut);
  fs::resize_file(cut, fs::file_size(whole) * 6 / 10);
  const auto model = load(cut);
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(losses_say(*model, "ends in the middle"));
  check(model, "cut off");
}

TEST_F(Layout, ADamagedRank) {
  for (const auto& file : fs::directory_iterator(recorded("ranks/guilty4"))) {
    fs::copy_file(file.path(), folder_ / file.path().filename());
  }
  for (const auto& file : fs::directory_iterator(folder_)) {
    if (file.path().filename().string().starts_with("rank1-")) {
      std::ofstream(file.path(), std::ios::trunc) << "this is no trace";
    }
  }
  const auto model = load(folder_.string());
  ASSERT_NE(model, nullptr);
  EXPECT_TRUE(losses_say(*model, "rank1-")) << "the damaged file is named";
  check(model, "a damaged rank");
}

// The checks themselves must find what they look for.
TEST_F(Layout, TheChecksSee) {
  resize(kSizes[0]);
  const char* text = "memory";
  const auto draw = [&](float second_y, float width) {
    ImGui::GetIO().DeltaTime = 1.0F / 60;
    for (int i = 0; i < 2; ++i) {
      ImGui::NewFrame();
      ImGui::SetNextWindowPos({10, 10});
      ImGui::SetNextWindowSize({width, 200});
      ImGui::Begin("page", nullptr, ImGuiWindowFlags_NoDecoration);
      ImGui::GetWindowDrawList()->AddText({30, 40}, 0xffffffff, text);
      ImGui::GetWindowDrawList()->AddText({31, second_y}, 0xffffffff, text);
      ImGui::End();
      ImGui::Render();
    }
    return drawn_letters();
  };
  EXPECT_EQ(draw(80, 300).size(), 12U);
  EXPECT_TRUE(covered_letters(draw(80, 300)).empty());
  EXPECT_FALSE(covered_letters(draw(42, 300)).empty());
  EXPECT_TRUE(cut_letters(draw(80, 300)).empty());
  EXPECT_FALSE(cut_letters(draw(80, 50)).empty());
  text = "2.0 MiB of it";
  EXPECT_TRUE(glued_units(draw(80, 300)).empty());
  text = "2.0 MiBof it";
  EXPECT_EQ(glued_units(draw(80, 300)), (std::vector<std::string>{"MiBo", "MiBo"}));
}

}  // namespace
}  // namespace tidemark::view
