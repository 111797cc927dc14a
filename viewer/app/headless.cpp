#include "viewer/app/headless.h"

#define EGL_NO_X11               // Xlib.h defines words like Status as macros
#define MESA_EGL_NO_X11_HEADERS  // the same for EGL's headers before 2020
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <imgui.h>
#include <imgui_impl_opengl3.h>
#include <implot.h>

#include <algorithm>
#include <optional>

#include "viewer/app/gl_calls.h"
#include "viewer/app/gl_textures.h"
#include "viewer/widgets/fonts.h"
#include "viewer/widgets/theme.h"

namespace tidemark::view {

namespace {

// libEGL, which stays loaded: drivers do not survive being unloaded.
struct Egl {
  void* library = ::dlopen("libEGL.so.1", RTLD_NOW | RTLD_LOCAL);
#define TIDEMARK_EGL(TYPE, NAME) \
  TYPE NAME = library == nullptr ? nullptr : reinterpret_cast<TYPE>(::dlsym(library, #NAME))
  TIDEMARK_EGL(PFNEGLGETPROCADDRESSPROC, eglGetProcAddress);
  TIDEMARK_EGL(PFNEGLGETDISPLAYPROC, eglGetDisplay);
  TIDEMARK_EGL(PFNEGLINITIALIZEPROC, eglInitialize);
  TIDEMARK_EGL(PFNEGLTERMINATEPROC, eglTerminate);
  TIDEMARK_EGL(PFNEGLBINDAPIPROC, eglBindAPI);
  TIDEMARK_EGL(PFNEGLCHOOSECONFIGPROC, eglChooseConfig);
  TIDEMARK_EGL(PFNEGLCREATECONTEXTPROC, eglCreateContext);
  TIDEMARK_EGL(PFNEGLDESTROYCONTEXTPROC, eglDestroyContext);
  TIDEMARK_EGL(PFNEGLMAKECURRENTPROC, eglMakeCurrent);
  TIDEMARK_EGL(PFNEGLGETERRORPROC, eglGetError);
#undef TIDEMARK_EGL
};

const Egl& egl() {
  static const Egl loaded;
  return loaded;
}

// ImGui's renderer needs one of these two libraries of OpenGL.
const char* missing_part() {
  if (egl().eglGetProcAddress == nullptr) return "libEGL.so.1 is missing";
  for (const char* name : {"libOpenGL.so.0", "libGL.so.1"}) {
    if (::dlopen(name, RTLD_LAZY | RTLD_LOCAL) != nullptr) return nullptr;
  }
  return "libOpenGL.so.0 is missing";
}

Error cannot_draw(const char* why) {
  return {fmt::format(
      "cannot draw without a display: {}. On Debian and Ubuntu, install libegl1, libopengl0 and "
      "libgl1-mesa-dri; on Fedora, mesa-libEGL, libglvnd-opengl and mesa-dri-drivers",
      why)};
}

template <typename Function>
Function gl_function(const char* name) {
  return reinterpret_cast<Function>(egl().eglGetProcAddress(name));
}

EGLDisplay open_display() {
  const auto get = gl_function<PFNEGLGETPLATFORMDISPLAYEXTPROC>("eglGetPlatformDisplayEXT");
  EGLDisplay display = EGL_NO_DISPLAY;
  if (get != nullptr) {
    display = get(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
  }
  if (display != EGL_NO_DISPLAY && egl().eglInitialize(display, nullptr, nullptr) == EGL_TRUE) {
    return display;
  }
  display = egl().eglGetDisplay(EGL_DEFAULT_DISPLAY);
  if (display != EGL_NO_DISPLAY && egl().eglInitialize(display, nullptr, nullptr) == EGL_TRUE) {
    return display;
  }
  return EGL_NO_DISPLAY;
}

}  // namespace

struct Headless::Gl {
  int width = 0;
  int height = 0;
  EGLDisplay display = EGL_NO_DISPLAY;
  EGLContext context = EGL_NO_CONTEXT;
  GLuint frame = 0;
  GLuint colour = 0;
  std::optional<GlCalls> calls;
  ImGuiContext* imgui = nullptr;
  ImPlotContext* implot = nullptr;

  Gl() = default;
  Gl(const Gl&) = delete;
  Gl& operator=(const Gl&) = delete;
  ~Gl() {
    if (imgui != nullptr) {
      leave_textures();
      ImGui_ImplOpenGL3_Shutdown();
      ImPlot::DestroyContext(implot);
      ImGui::DestroyContext(imgui);
    }
    if (display == EGL_NO_DISPLAY) return;
    egl().eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
    if (context != EGL_NO_CONTEXT) egl().eglDestroyContext(display, context);
    egl().eglTerminate(display);
  }

  Status make_context() {
    if (const char* what = missing_part(); what != nullptr) return cannot_draw(what);
    display = open_display();
    if (display == EGL_NO_DISPLAY) return cannot_draw("EGL has no driver here");
    egl().eglBindAPI(EGL_OPENGL_API);
    const EGLint config_wish[] = {EGL_SURFACE_TYPE, 0, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT,
                                  EGL_NONE};
    EGLConfig config = nullptr;
    EGLint count = 0;
    egl().eglChooseConfig(display, config_wish, &config, 1, &count);
    const EGLint context_wish[] = {EGL_CONTEXT_MAJOR_VERSION, 3, EGL_CONTEXT_MINOR_VERSION, 3,
                                   EGL_NONE};
    context = egl().eglCreateContext(display, count > 0 ? config : nullptr, EGL_NO_CONTEXT, context_wish);
    if (context == EGL_NO_CONTEXT ||
        egl().eglMakeCurrent(display, EGL_NO_SURFACE, EGL_NO_SURFACE, context) != EGL_TRUE) {
      return Error{
          fmt::format("cannot create an OpenGL 3.3 context (EGL error {:#x})", egl().eglGetError())};
    }
    return {};
  }

  Status make_frame() {
    calls.emplace(egl().eglGetProcAddress);
    const auto gen_frames = gl_function<PFNGLGENFRAMEBUFFERSPROC>("glGenFramebuffers");
    const auto bind_frame = gl_function<PFNGLBINDFRAMEBUFFERPROC>("glBindFramebuffer");
    const auto gen_buffers = gl_function<PFNGLGENRENDERBUFFERSPROC>("glGenRenderbuffers");
    const auto bind_buffer = gl_function<PFNGLBINDRENDERBUFFERPROC>("glBindRenderbuffer");
    const auto storage = gl_function<PFNGLRENDERBUFFERSTORAGEPROC>("glRenderbufferStorage");
    const auto attach = gl_function<PFNGLFRAMEBUFFERRENDERBUFFERPROC>("glFramebufferRenderbuffer");
    const auto check = gl_function<PFNGLCHECKFRAMEBUFFERSTATUSPROC>("glCheckFramebufferStatus");
    gen_frames(1, &frame);
    bind_frame(GL_FRAMEBUFFER, frame);
    gen_buffers(1, &colour);
    bind_buffer(GL_RENDERBUFFER, colour);
    storage(GL_RENDERBUFFER, GL_RGBA8, width, height);
    attach(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, colour);
    if (check(GL_FRAMEBUFFER) != GL_FRAMEBUFFER_COMPLETE) {
      return Error{fmt::format("cannot create a picture of {} x {} pixels; try a smaller --size",
                               width, height)};
    }
    return {};
  }
};

Headless::Headless(std::unique_ptr<Gl> gl) : gl_(std::move(gl)) {}
Headless::~Headless() = default;

Result<std::unique_ptr<Headless>> Headless::create(int width, int height, bool dark, float scale,
                                                   FontSource source) {
  auto gl = std::make_unique<Gl>();
  gl->width = width;
  gl->height = height;
  if (Status s = gl->make_context(); !s) return s.error();
  if (Status s = gl->make_frame(); !s) return s.error();
  gl->imgui = ImGui::CreateContext();
  gl->implot = ImPlot::CreateContext();
  ImGuiIO& io = ImGui::GetIO();
  io.IniFilename = nullptr;
  io.LogFilename = nullptr;
  io.ConfigFlags |= ImGuiConfigFlags_DockingEnable;
  apply_theme(dark, scale);
  load_fonts(scale, source);
  ImGui_ImplOpenGL3_Init("#version 330 core");
  use_gl_textures(*gl->calls);
  return std::unique_ptr<Headless>(new Headless(std::move(gl)));
}

Image Headless::render(const std::function<void()>& draw, int frames) {
  ImGuiIO& io = ImGui::GetIO();
  io.DisplaySize = {static_cast<float>(gl_->width), static_cast<float>(gl_->height)};
  for (int i = 0; i < frames; ++i) {
    io.DeltaTime = 1.0F / 60;
    ImGui_ImplOpenGL3_NewFrame();
    ImGui::NewFrame();
    draw();
    ImGui::Render();
  }
  const Rgb ground = theme().panel;
  gl_->calls->viewport(0, 0, gl_->width, gl_->height);
  gl_->calls->clear_colour(static_cast<float>(ground.r) / 255, static_cast<float>(ground.g) / 255,
               static_cast<float>(ground.b) / 255, 1);
  gl_->calls->clear(GL_COLOR_BUFFER_BIT);
  ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  Image image{gl_->width, gl_->height, {}};
  const size_t row = static_cast<size_t>(gl_->width) * 4;
  image.rgba.resize(row * static_cast<size_t>(gl_->height));
  gl_->calls->pixel_store(GL_PACK_ALIGNMENT, 1);
  gl_->calls->read_pixels(0, 0, gl_->width, gl_->height, GL_RGBA, GL_UNSIGNED_BYTE, image.rgba.data());
  // OpenGL's first row is the bottom one.
  for (size_t top = 0, bottom = static_cast<size_t>(gl_->height) - 1; top < bottom;
       ++top, --bottom) {
    std::swap_ranges(image.rgba.begin() + static_cast<std::ptrdiff_t>(top * row),
                     image.rgba.begin() + static_cast<std::ptrdiff_t>((top + 1) * row),
                     image.rgba.begin() + static_cast<std::ptrdiff_t>(bottom * row));
  }
  return image;
}

}  // namespace tidemark::view
