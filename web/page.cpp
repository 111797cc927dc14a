// The viewer as a page: what window.cpp is for a display. It runs in a worker of the page, which
// draws into a canvas of the page and owns the model, so the page itself never waits for it.
// worker.js calls the functions page_*; host() sends messages to the page.
#include <GLES3/gl3.h>
#include <emscripten.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_impl_opengl3.h>
#include <imgui_internal.h>
#include <implot.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "export/report/json_writer.h"
#include "proto/base/work.h"
#include "viewer/app/draw_hash.h"
#include "viewer/app/gl_calls.h"
#include "viewer/app/gl_textures.h"
#include "viewer/app/shell.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/theme.h"

// clang-format off
EM_JS(void, host, (const char* kind, const char* text), {
  Module['host'](UTF8ToString(kind), UTF8ToString(text));
});
EM_JS(int, make_context, (), {
  const context = GL.createContext(Module['canvas'],
    {majorVersion: 2, minorVersion: 0, alpha: false, antialias: false, depth: false, stencil: false,
     premultipliedAlpha: true, preserveDrawingBuffer: false, enableExtensionsByDefault: true});
  return context && GL.makeContextCurrent(context) ? 1 : 0;
});
// clang-format on

namespace tidemark::view {

namespace {

// As in window.cpp.
constexpr int kFramesAfterInput = 3;
constexpr int kMostFramesUndrawn = 100;
constexpr double kMsBetweenReports = 40;

// What page_turn() asks of the worker.
enum Next : int { kDrawAgain = 1, kBlink = 2, kWork = 4, kPicture = 8 };

// GlCalls finds functions by name.
void* gl_function(const char* name) {
  static const std::pair<std::string_view, void (*)()> calls[] = {
#define TIDEMARK_GL(call) {#call, reinterpret_cast<void (*)()>(call)}
      TIDEMARK_GL(glViewport),    TIDEMARK_GL(glClearColor),    TIDEMARK_GL(glClear),
      TIDEMARK_GL(glPixelStorei), TIDEMARK_GL(glReadPixels),    TIDEMARK_GL(glGetIntegerv),
      TIDEMARK_GL(glGenTextures), TIDEMARK_GL(glBindTexture),   TIDEMARK_GL(glTexParameteri),
      TIDEMARK_GL(glTexImage2D),  TIDEMARK_GL(glDeleteTextures)};
#undef TIDEMARK_GL
  for (const auto& [known, call] : calls) {
    if (known == name) return reinterpret_cast<void*>(call);
  }
  return nullptr;
}

class Page {
 public:
  explicit Page(bool dark) : shell_(config(dark), [this] { report_progress(); }) {
    ImGui::CreateContext();
    ImPlot::CreateContext();
    ImGuiIO& io = ImGui::GetIO();
    io.ConfigFlags |= ImGuiConfigFlags_DockingEnable;
    io.IniFilename = nullptr;
    io.BackendFlags |= ImGuiBackendFlags_HasMouseCursors;
    io.SetClipboardTextFn = [](void*, const char* text) { host("copy", text); };
    io.GetClipboardTextFn = [](void*) { return clipboard().c_str(); };
    ImGui_ImplOpenGL3_Init("#version 300 es");
    use_gl_textures(gl_);
    shell_.dialogs().ask_browser = [](bool second) { host("ask", second ? "second" : "first"); };
    shell_.dialogs().exporter.set_format(ExportFormat::kSqlite);
    shell_.dialogs().exporter.on_written = [](const std::string& path) {
      host("written", path.c_str());
    };
  }

  static std::string& clipboard() {
    static std::string text;
    return text;
  }

  void resize(int width, int height, float scale) {
    ImGui::GetIO().DisplaySize = {static_cast<float>(width), static_cast<float>(height)};
    if (scale != scale_) {
      scale_ = scale;
      rescale_ = true;
    }
    redraw_ = true;
    was_input();
  }

  void was_input() { pending_ = kFramesAfterInput; }

  // What the link asks to see.
  void start(const std::string& key, const std::string& value) {
    if (key == "panel") start_.panel = value;
    if (key == "time") start_.time = value;
    if (key == "search") start_.search = value;
    if (key == "rank") start_.rank = value;
    if (key == "steps") start_.steps = value;
    if (key == "lane") start_.lane = value;
    if (key == "view") start_.view = value;
    if (key == "alone") start_.alone = true;
  }

  void open(const std::vector<std::string>& paths, bool second) {
    if (const Status s = check_start(start_); !s) {
      shell_.show_error(s.error().message);
      start_ = {};
    }
    if (start_.alone) {
      shell_.panels().be_patient();
      shell_.selection().be_patient();
    }
    shell_.start_with(std::exchange(start_, {}));
    second&& paths.size() == 1 && shell_.model() != nullptr ? shell_.open_other(paths[0])
                                                            : shell_.open_in_order(paths);
    was_input();
  }

  int turn() {
    const bool changed = frame();
    if (changed) was_input();
    --pending_;
    tell_state();
    int next = std::exchange(picture_, false) ? kPicture : 0;
    if (work_is_waiting()) next |= kWork;
    if (pending_ > 0 || shell_.unfinished()) next |= kDrawAgain;
    if (ImGui::GetIO().WantTextInput) next |= kBlink;
    return next;
  }

  // Of the last turn, for measurements.
  double take_drawing_ms() { return std::exchange(drawing_ms_, 0); }

  void work() {
    run_waiting_work();
    was_input();
  }

 private:
  static Config config(bool dark) {
    Config config;
    config.dark = dark;
    return config;
  }

  // Whether it looks different from the frame before.
  bool frame() {
    if (const Model* model = shell_.model(); model != nullptr && model != fonts_for_) {
      fonts_for_ = model;
      if (need_characters(model->characters)) rescale_ = true;
    }
    if (std::exchange(rescale_, false)) {
      redraw_ = true;
      apply_theme(shell_.config().dark, scale_);
      load_fonts(scale_);
      ImGui_ImplOpenGL3_DestroyFontsTexture();
      ImGui_ImplOpenGL3_CreateFontsTexture();
    }
    const double now = emscripten_get_now();
    ImGui::GetIO().DeltaTime =
        static_cast<float>(std::clamp((now - std::exchange(last_ms_, now)) / 1000, 1e-4, 0.1));
    for (int i = 0; i < kMostFramesUndrawn; ++i) {
      ImGui_ImplOpenGL3_NewFrame();
      ImGui::NewFrame();
      shell_.draw();
      ImGui::Render();
      if (ImGui::GetCurrentContext()->InputEventsQueue.empty()) break;
    }
    const uint64_t looks = hash_of(*ImGui::GetDrawData());
    const bool changed = std::exchange(shown_, looks) != looks;
    picture_ = std::exchange(shell_.picture_wanted, false);
    if (std::exchange(redraw_, false) || changed || picture_) draw();
    return changed;
  }

  void draw() {
    const double began = emscripten_get_now();
    const ImVec2 size = ImGui::GetIO().DisplaySize;
    const ImVec4 ground = vec(theme().panel);
    glViewport(0, 0, static_cast<int>(size.x), static_cast<int>(size.y));
    glClearColor(ground.x, ground.y, ground.z, 1);
    glClear(GL_COLOR_BUFFER_BIT);
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    drawing_ms_ = emscripten_get_now() - began;
  }

  // During work, when no frame is drawn.
  void report_progress() {
    const double now = emscripten_get_now();
    if (now - reported_ms_ < kMsBetweenReports) return;
    reported_ms_ = now;
    const Loader& loader = shell_.loading() ? shell_.loader() : shell_.other_loader();
    host("progress", fmt::format("{:.3f} {}", loader.progress(), loader.stage()).c_str());
  }

  // Everything that was opened is read and analysed, or there is an error.
  bool is_ready() const {
    if (work_is_waiting() || shell_.loading() || shell_.loading_other()) return false;
    return shell_.model() == nullptr || shell_.model()->report_ready;
  }

  // For the title and the address of the page, and for tests.
  void tell_state() {
    const Model* model = shell_.model();
    const Selection& selection = shell_.selection();
    const Model* other = selection.comparison.other().get();
    JsonWriter json;
    json.begin_object();
    json.field("name", model == nullptr ? std::string() : short_name(*model));
    json.field("events", model == nullptr ? uint64_t{0} : model->events);
    json.field("lanes", model == nullptr ? size_t{0} : model->lanes.size());
    json.field("ready", is_ready());
    json.field("other", other == nullptr ? std::string() : short_name(*other));
    json.field("block", selection.highlights.allocation.has_value());
    json.field("link", model == nullptr ? std::string() : link_to(*model, selection));
    json.field("error", shell_.error());
    json.field("notice", shell_.notice);
    json.field("dark", theme().dark);
    json.field("cursor", static_cast<int>(ImGui::GetMouseCursor()));
    json.end_object();
    const std::string state = std::move(json).take();
    if (state == told_) return;
    told_ = state;
    host("state", state.c_str());
  }

  Shell shell_;
  GlCalls gl_{gl_function};
  StartView start_;
  float scale_ = 0;
  bool rescale_ = false;
  bool redraw_ = true;
  bool picture_ = false;
  int pending_ = kFramesAfterInput;
  uint64_t shown_ = 0;
  double last_ms_ = 0;
  double drawing_ms_ = 0;
  double reported_ms_ = 0;
  const Model* fonts_for_ = nullptr;
  std::string told_;
};

std::unique_ptr<Page> page;

// Nothing else may throw: proto, collector and analysis return errors.
template <typename Act>
int guarded(Act act) {
  try {
    return act();
  } catch (const std::bad_alloc&) {
    host("fatal", "memory");
  }
  return 0;
}

}  // namespace

}  // namespace tidemark::view

using tidemark::view::guarded;
using tidemark::view::page;

extern "C" {

EMSCRIPTEN_KEEPALIVE int page_create(int width, int height, float scale, int dark) {
  if (make_context() == 0) return 0;
  page = std::make_unique<tidemark::view::Page>(dark != 0);
  page->resize(width, height, scale);
  return 1;
}

EMSCRIPTEN_KEEPALIVE void page_resize(int width, int height, float scale) {
  page->resize(width, height, scale);
}

EMSCRIPTEN_KEEPALIVE void page_start(const char* key, const char* value) {
  page->start(key, value);
}

// Paths, one per line.
EMSCRIPTEN_KEEPALIVE void page_open(const char* lines, int second) {
  std::vector<std::string> paths;
  std::string_view rest = lines;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    paths.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  page->open(paths, second != 0);
}

EMSCRIPTEN_KEEPALIVE void page_paste(const char* text) {
  tidemark::view::Page::clipboard() = text;
}

EMSCRIPTEN_KEEPALIVE void page_was_input() {
  page->was_input();
}

EMSCRIPTEN_KEEPALIVE int page_turn() {
  return guarded([] { return page->turn(); });
}

EMSCRIPTEN_KEEPALIVE double page_drawing_ms() {
  return page->take_drawing_ms();
}

EMSCRIPTEN_KEEPALIVE void page_work() {
  guarded([] {
    page->work();
    return 0;
  });
}

}  // extern "C"
