// Words, numbers and names on the screen: where lines break, and what is left of long names.
#include "viewer/widgets/text.h"

#include <functional>
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
  EXPECT_EQ(kernel_name("void f<g(float*)::{lambda(int)#2}>(int)"), "f<lambda#2>");
  EXPECT_EQ(kernel_name("_Z9addKernelIfEvPT_i"), "addKernel<float>");
  EXPECT_EQ(kernel_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  EXPECT_EQ(kernel_name(""), "(no name)");
  EXPECT_EQ(kernel_name("<<<((("), kernel_name("<<<(((")) << "damaged names are no problem";
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

}  // namespace
}  // namespace tidemark::view
