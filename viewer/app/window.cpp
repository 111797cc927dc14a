#include "viewer/app/window.h"

#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_impl_glfw.h>
#include <imgui_impl_opengl3.h>
#include <imgui_internal.h>
#include <implot.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "viewer/app/draw_hash.h"
#include "viewer/app/gl_calls.h"
#include "viewer/app/gl_textures.h"
#include "viewer/app/png_file.h"
#include "viewer/app/shell.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

// It takes up to this many frames until every panel shows the effect of an input (hover, focus,
// layout).
constexpr int kFramesAfterInput = 3;

void print_error(int, const char* message) {
  fmt::print(stderr, "tidemark-view: {}\n", message);
}

// Until there is a window, what GLFW says is only the reason of our own message.
std::string reason;

void keep_error(int, const char* message) {
  if (reason.empty()) reason = message;
}

int fail(std::string_view what, std::string_view help) {
  fmt::print(stderr, "tidemark-view: {}{}; {}\n", what,
             reason.empty() ? "" : fmt::format(" ({})", reason), help);
  return 2;
}

// More frames than the keys that anybody presses while one frame is drawn.
constexpr int kMostFramesUndrawn = 100;

Image read_pixels(const GlCalls& gl, int width, int height) {
  Image image{width, height, {}};
  const auto row = static_cast<size_t>(width) * 4;
  std::vector<uint8_t> upside_down(row * static_cast<size_t>(height));
  gl.pixel_store(GL_PACK_ALIGNMENT, 1);
  gl.read_pixels(0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, upside_down.data());
  image.rgba.reserve(upside_down.size());
  for (size_t y = static_cast<size_t>(height); y-- > 0;) {
    const auto from = upside_down.begin() + static_cast<std::ptrdiff_t>(y * row);
    image.rgba.insert(image.rgba.end(), from, from + static_cast<std::ptrdiff_t>(row));
  }
  return image;
}

std::string picture_path() {
  std::error_code error;
  for (int i = 1;; ++i) {
    std::string name = fmt::format("tidemark-view-{}.png", i);
    if (!std::filesystem::exists(name, error)) return name;
  }
}

class Window {
 public:
  Window(const WindowOptions& options, Config config)
      : options_(options),
        layout_(config.layout_file()),
        shell_(std::move(config), [] { glfwPostEmptyEvent(); }) {}

  bool create() {
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
    glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
    glfwWindowHint(GLFW_SCALE_TO_MONITOR, GLFW_TRUE);
    window_ = glfwCreateWindow(options_.width, options_.height, "tidemark", nullptr, nullptr);
    if (window_ == nullptr) return false;
    glfwMakeContextCurrent(window_);
    gl_.emplace(glfwGetProcAddress);
    glfwSwapInterval(1);
    glfwSetWindowUserPointer(window_, this);
    ImGui::CreateContext();
    ImPlot::CreateContext();
    ImGuiIO& io = ImGui::GetIO();
    io.ConfigFlags |= ImGuiConfigFlags_DockingEnable;
    io.IniFilename = layout_.empty() ? nullptr : layout_.c_str();
    set_scale();
    ImGui_ImplGlfw_InitForOpenGL(window_, true);
    ImGui_ImplOpenGL3_Init("#version 330 core");
    use_gl_textures(*gl_);
    glfwSetDropCallback(window_, [](GLFWwindow* w, int count, const char** paths) {
      Shell& shell = static_cast<Window*>(glfwGetWindowUserPointer(w))->shell_;
      const bool shift = glfwGetKey(w, GLFW_KEY_LEFT_SHIFT) == GLFW_PRESS ||
                         glfwGetKey(w, GLFW_KEY_RIGHT_SHIFT) == GLFW_PRESS;
      shell.drop({paths, paths + count}, shift);
    });
    glfwSetWindowContentScaleCallback(window_, [](GLFWwindow* w, float, float) {
      static_cast<Window*>(glfwGetWindowUserPointer(w))->rescale_ = true;
    });
    glfwSetWindowRefreshCallback(window_, [](GLFWwindow* w) {
      static_cast<Window*>(glfwGetWindowUserPointer(w))->redraw_ = true;
    });
    shell_.follow(options_.follow);
    shell_.start_with(options_.start);
    shell_.open_in_order(options_.paths);
    return true;
  }

  int run() {
    int pending = kFramesAfterInput;
    int shown = 0;
    while (glfwWindowShouldClose(window_) == 0 && !shell_.quit_wanted) {
      if (pending > 0) {
        glfwPollEvents();
        --pending;
      } else {
        // Any event ends the wait, also one from the loader. The timeout keeps the text cursor
        // blinking.
        const bool typing = ImGui::GetIO().WantTextInput;
        glfwWaitEventsTimeout(typing               ? 0.25
                              : shell_.loading()   ? 0.1
                              : shell_.following() ? 0.5
                                                   : 30.0);
        pending = kFramesAfterInput;
      }
      if (glfwGetWindowAttrib(window_, GLFW_ICONIFIED) != 0) {
        glfwWaitEvents();
        continue;
      }
      // Input and loaded data may arrive during any of these frames.
      if (frame()) pending = kFramesAfterInput;
      if (shell_.unfinished()) pending = std::max(pending, 1);
      if (options_.frames > 0) {
        pending = kFramesAfterInput;
        if (shell_.model() != nullptr && !shell_.loading_other() && ++shown >= options_.frames) {
          break;
        }
      }
    }
    shell_.config().save();
    // An unfinished report must not keep the program open.
    leave_at_once_ = shell_.working() && !shell_.exporting();
    return 0;
  }

  bool leave_at_once() const { return leave_at_once_; }

  void destroy() {
    leave_textures();
    ImGui_ImplOpenGL3_Shutdown();
    ImGui_ImplGlfw_Shutdown();
    ImPlot::DestroyContext();
    ImGui::DestroyContext();
    glfwDestroyWindow(window_);
  }

 private:
  void set_scale() {
    float x = 1;
    glfwGetWindowContentScale(window_, &x, nullptr);
    const float scale = options_.scale > 0 ? options_.scale : std::max(1.0F, x);
    apply_theme(shell_.config().dark, scale);
    load_fonts(scale);
  }

  // Whether it looks different from the frame before.
  bool frame() {
    if (const Model* model = shell_.model(); model != nullptr && model != fonts_for_) {
      fonts_for_ = model;
      if (need_characters(model->characters)) rescale_ = true;
    }
    if (rescale_) {
      rescale_ = false;
      redraw_ = true;
      set_scale();
      ImGui_ImplOpenGL3_DestroyFontsTexture();
      ImGui_ImplOpenGL3_CreateFontsTexture();
    }
    // ImGui spreads fast input over several frames, two for each typed character. A software
    // renderer takes so long that typing would lag: only the last of these frames is drawn.
    for (int i = 0; i < kMostFramesUndrawn; ++i) {
      ImGui_ImplOpenGL3_NewFrame();
      ImGui_ImplGlfw_NewFrame();
      ImGui::NewFrame();
      shell_.draw();
      ImGui::Render();
      if (ImGui::GetCurrentContext()->InputEventsQueue.empty()) break;
    }
    const uint64_t looks = hash_of(*ImGui::GetDrawData());
    const bool changed = std::exchange(shown_, looks) != looks;
    if (std::exchange(redraw_, false) || changed || shell_.picture_wanted) draw();
    return changed;
  }

  void draw() {
    int width = 0;
    int height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    const ImVec4 ground = vec(theme().panel);
    gl_->viewport(0, 0, width, height);
    gl_->clear_colour(ground.x, ground.y, ground.z, 1);
    gl_->clear(GL_COLOR_BUFFER_BIT);
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    if (std::exchange(shell_.picture_wanted, false)) {
      const std::string path = picture_path();
      const Status saved = write_png(read_pixels(*gl_, width, height), path);
      shell_.notice = saved ? "saved " + path : saved.error().message;
    }
    glfwSwapBuffers(window_);
  }

  WindowOptions options_;
  std::string layout_;
  Shell shell_;
  GLFWwindow* window_ = nullptr;
  std::optional<GlCalls> gl_;
  bool rescale_ = false;
  bool redraw_ = true;                // the window's content was lost
  uint64_t shown_ = 0;                // the hash of the frame on the screen
  const Model* fonts_for_ = nullptr;  // the fonts have its characters
  bool leave_at_once_ = false;
};

}  // namespace

int run_window(const WindowOptions& options, Config config) {
  glfwSetErrorCallback(keep_error);
  if (glfwInit() == GLFW_FALSE) {
    return fail("no display found", "use --screenshot OUT.png to draw without one");
  }
  int status = 2;
  {
    Window window(options, std::move(config));
    if (window.create()) {
      glfwSetErrorCallback(print_error);
      status = window.run();
      if (window.leave_at_once()) std::_Exit(status);
      window.destroy();
    } else {
      fail("cannot open a window with OpenGL 3.3",
           "for an old driver or ssh -X, use Mesa's software OpenGL (set LIBGL_ALWAYS_SOFTWARE=1; "
           "package libgl1-mesa-dri), or draw without a window (--screenshot OUT.png)");
    }
  }
  glfwTerminate();
  return status;
}

}  // namespace tidemark::view
