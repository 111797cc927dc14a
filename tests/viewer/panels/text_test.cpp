// Words, numbers and names on the screen: where lines break, and what is left of long names.
#include "viewer/widgets/text.h"

#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/drawn_text.h"
#include "tests/support/panel_fixture.h"
#include "viewer/model/kernel_name.h"
#include "viewer/widgets/fallback_fonts.h"

namespace tidemark::view {
namespace {

class Text : public Interaction {
 protected:
  // Text needs a frame, and a window whose font is used.
  void within_frame(const std::function<void()>& what) {
    ImGui::GetIO().DeltaTime = 1.0F / 60;
    ImGui::NewFrame();
    what();
    ImGui::Render();
  }
};

TEST_F(Text, NumbersAreNotBrokenAcrossLines) {
  within_frame([] {
    const std::string sentence =
        "out of memory: 12.0 MiB requested, 1,234.5 GiB in use after 13.7 s (99.5 % of it), see "
        "torch.cuda.empty_cache() in /home/me/a_rather_long_folder/train.py";
    for (float width = 80; width < 500; width += 7) {
      std::istringstream lines(wrapped(sentence, width));
      std::string joined;
      for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(width_of(line), width) << line;
        joined += line;
        for (const char* unit : {"MiB", "GiB", "s (", "%"}) {
          EXPECT_FALSE(line.starts_with(unit)) << width << ": " << line;
        }
        for (const char* half : {"12.", "1,", "1,234."}) {
          EXPECT_FALSE(line.ends_with(half)) << width << ": " << line;
        }
      }
      EXPECT_EQ(without_spaces(joined), without_spaces(sentence)) << "nothing is lost";
    }
  });
}

TEST_F(Text, SearchesFindWhatIsDrawn) {
  EXPECT_EQ(folded("Keep  train.py:40   in Linear.forward"), "keep train.py:40 in linear.forward");
}

TEST_F(Text, LongWordsAreBrokenAtTheirSigns) {
  within_frame([&] {
    const float width = width_of("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:T");
    EXPECT_EQ(wrapped("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", width),
              "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:\nTrue");
  });
}

TEST_F(Text, TheFunctionIsCutAndThePlaceStays) {
  within_frame([] {
    const std::string line = "_multi_tensor_adam  adam.py:1250";
    EXPECT_EQ(fitted_line(line, 1000), line);
    EXPECT_EQ(fitted_line("optimizer state", width_of("optimizer")),
              fitted("optimizer state", width_of("optimizer")));
    for (float width = width_of("_m...  adam.py:1250"); width < width_of(line); width += 5) {
      const std::string cut = fitted_line(line, width);
      EXPECT_LE(width_of(cut), width);
      EXPECT_TRUE(cut.starts_with("_")) << cut;
      EXPECT_TRUE(cut.ends_with("...  adam.py:1250")) << cut;
    }
    EXPECT_LE(width_of(fitted_line(line, 40)), 40);
  });
}

TEST_F(Text, LineBreaksOfTheTextStay) {
  within_frame([] { EXPECT_EQ(wrapped("one\ntwo three", 1000), "one\ntwo three"); });
}

TEST_F(Text, NamesCutInTheMiddleKeepBothEnds) {
  within_frame([] {
    const std::string name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_nt";
    for (float width = 60; width < 400; width += 11) {
      const std::string cut = fitted_ends(name, width);
      EXPECT_LE(width_of(cut), width);
      if (cut == name) continue;
      EXPECT_TRUE(cut.starts_with("sm")) << cut;
      EXPECT_TRUE(cut.ends_with("t")) << cut;
    }
    EXPECT_EQ(fitted_ends("short", 1000), "short");
  });
}

TEST(KernelName, KeepsTheArgumentsThatTellInstancesApart) {
  EXPECT_EQ(kernel_name("void at::native::vectorized_elementwise_kernel<4, "
                        "at::native::FillFunctor<float>, std::array<char*, 1ul> >(int, "
                        "at::native::FillFunctor<float>, std::array<char*, 1ul>)"),
            "at::native::vectorized_elementwise_kernel<4, FillFunctor<float>, array<char*, 1>>");
  EXPECT_EQ(kernel_name("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<"
                        "at::native::(anonymous namespace)::TensorListMetadata<2>, "
                        "at::native::(anonymous namespace)::UnaryOpFunctor<float, 2, 1, 1>, "
                        "at::native::Sqrt<float> >(int)"),
            "at::native::multi_tensor_apply_kernel<TensorListMetadata<2>, UnaryOpFunctor<float, 2, "
            "1, 1>, Sqrt<float>>");
  EXPECT_EQ(kernel_name("void f<g(float*)::{lambda(int)#2}>(int)"), "f<g::lambda#2>");
  EXPECT_EQ(kernel_name("void f<2, n::g<n::copy(n::T&)::{lambda()#3}::operator()() const::"
                        "{lambda()#7}::operator()() const::{lambda(float)#1}>(n::T&, n::copy(n::T&)"
                        "::{lambda()#3} const&)::{lambda(int)#1}>(int)"),
            "f<2, g<copy::lambda#3#7#1>::lambda#1>");
  EXPECT_EQ(kernel_name("void r<n::sum<float>::operator()(n::T&)::{lambda(float)#1}, int>(int)"),
            "r<sum<float>::lambda#1, int>");
  EXPECT_EQ(kernel_name("void f<g(float*)::'lambda0'(int)>(int)"), "f<g::lambda#2>") << "libc++";
  EXPECT_EQ(kernel_name("void f<2, n::V<int> n::g<n::copy(n::T&)::'lambda1'()::operator()() const::"
                        "'lambda5'()::operator()() const::'lambda'(float)>(n::T&, n::copy(n::T&)"
                        "::'lambda1'() const&)::'lambda'(int)>(int)"),
            "f<2, g<copy::lambda#3#7#1>::lambda#1>");
  EXPECT_EQ(kernel_name("void f<4, unsigned int, void h<unsigned int>(int)::'lambda'(int)>(int)"),
            "f<4, unsigned int, h<unsigned int>::lambda#1>");
  EXPECT_EQ(kernel_name("_Z9addKernelIfEvPT_i"), "addKernel<float>");
  EXPECT_EQ(kernel_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  EXPECT_EQ(kernel_name(""), "(no name)");
  EXPECT_EQ(kernel_name("<<<((("), kernel_name("<<<(((")) << "damaged names are no problem";
}

TEST(FrameNames, LabelsAndFlameGraphsSkipTheUnwinder) {
  const auto loaded = load_model(TIDEMARK_TEST_DATA "/snapshots/cpp_stacks.pickle.gz");
  ASSERT_TRUE(loaded);
  const Model& model = **loaded;
  const Lane& lane = model.lanes.front();
  const FrameText& names = model.text_of(lane);
  const auto of_unwinder = [](std::string_view text) {
    return text.find("torch::unwind") != text.npos || text.find("CapturedTraceback") != text.npos;
  };
  size_t recorded = 0;
  for (uint32_t i = 0; i < lane.memory->allocations.size(); ++i) {
    const uint32_t stack = lane.memory->allocations[i].stack;
    for (const std::string& line : names.names().stack_text(stack)) recorded += of_unwinder(line);
    EXPECT_FALSE(of_unwinder(names.headline(stack))) << names.headline(stack);
  }
  EXPECT_GT(recorded, 0U);
  Selection selection;
  selection.reset(model);
  const FlameTree tree = FlameTree::of({names.names(), selection.cursor.moment(model).live});
  for (const FlameNode& n : tree.nodes) {
    if (n.kind != FlameKind::kFrame) continue;
    EXPECT_FALSE(of_unwinder(names.names().frame_text(n.frame)));
  }
  EXPECT_GT(tree.nodes.size(), 3U);
}

TEST(KernelName, RecordedKernelsAreToldApart) {
  const auto loaded = load_model(TIDEMARK_TRACES "/torch/training.tier2.tmk");
  ASSERT_TRUE(loaded);
  const Dictionary& names = (*loaded)->trace.processes.front().names;
  std::map<std::string, std::string> seen;
  size_t templates = 0;
  for (uint32_t i = 1; i <= names.string_count(); ++i) {
    const std::string whole(names.string(i));
    if (!whole.starts_with("_ZN2at6native")) continue;
    ++templates;
    const auto [at, fresh] = seen.emplace(kernel_name(whole), whole);
    EXPECT_TRUE(fresh || at->second == whole) << at->first << "\n" << at->second << "\n" << whole;
  }
  EXPECT_GT(templates, 20U);
}

TEST_F(Text, NamesOutsideLatinScriptsAreDrawnWhereAFontHasThem) {
  const std::vector<char16_t> cyrillic = {0x043E, 0x0431, 0x0443};
  const std::vector<ImWchar> wanted(cyrillic.begin(), cyrillic.end());
  if (fonts_for(wanted, "").empty()) GTEST_SKIP() << "no font on this machine has them";
  EXPECT_EQ(fonts().body->FindGlyphNoFallback(0x043E), nullptr) << "not loaded without need";
  EXPECT_TRUE(need_characters(cyrillic));
  EXPECT_FALSE(need_characters(cyrillic)) << "they are known now";
  load_fonts(1);
  unsigned char* pixels = nullptr;
  int width = 0;
  int height = 0;
  ImGui::GetIO().Fonts->GetTexDataAsRGBA32(&pixels, &width, &height);
  for (ImFont* font : {fonts().body, fonts().bold, fonts().mono, fonts().title}) {
    for (const ImWchar c : wanted) EXPECT_NE(font->FindGlyphNoFallback(c), nullptr) << c;
  }
}

TEST(Names, TellTwoTracesApart) {
  const auto names = [](const char* one, const char* two) {
    Model a;
    Model b;
    a.trace.path = one;
    b.trace.path = two;
    return name_beside(a, b) + " | " + name_beside(b, a);
  };
  EXPECT_EQ(names("/runs/a.tmk", "/runs/b.tmk"), "a.tmk | b.tmk");
  EXPECT_EQ(names("/runs/base/run.tmk", "/runs/tuned/run.tmk"), "base/run.tmk | tuned/run.tmk");
  EXPECT_EQ(names("/a/x/run/", "/b/x/run"), "a/x/run | b/x/run");
  EXPECT_EQ(names("run.tmk", "old/run.tmk"), "run.tmk | old/run.tmk");
  EXPECT_EQ(names("/run.tmk", "run.tmk"), "/run.tmk | run.tmk");
  EXPECT_EQ(names("/a/run.tmk", "/a/run.tmk"), "run.tmk | run.tmk");
}

}  // namespace
}  // namespace tidemark::view
