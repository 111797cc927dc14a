#include "injector/python/gil.h"

#include "injector/python/find_symbol.h"

namespace tidemark::injector {
namespace {

using Object = void;

// All of them exist from 3.9 on.
struct PythonApi {
  int (*gil_ensure)() = nullptr;
  void (*gil_release)(int) = nullptr;
  Object* (*thread_state)() = nullptr;
  Object* (*thread_frame)(Object*) = nullptr;
  Object* (*frame_back)(Object*) = nullptr;
  Object* (*frame_code)(Object*) = nullptr;
  int (*frame_line)(Object*) = nullptr;
  Object* (*attribute)(Object*, const char*) = nullptr;
  const char* (*utf8)(Object*) = nullptr;
  void (*unreference)(Object*) = nullptr;
  void (*clear_error)() = nullptr;
};
PythonApi g_api;

uint32_t text_attribute(Object* code, const char* name) {
  Object* const text = g_api.attribute(code, name);
  uint32_t id = 0;
  if (text != nullptr) {
    if (const char* const utf8 = g_api.utf8(text)) id = recorder().intern_string(utf8);
    g_api.unreference(text);
  }
  g_api.clear_error();
  return id;
}

}  // namespace

bool find_python_api() noexcept {
  PythonApi api;
  const bool all = find_symbol(api.gil_ensure, "PyGILState_Ensure") &&
                   find_symbol(api.gil_release, "PyGILState_Release") &&
                   find_symbol(api.thread_state, "PyThreadState_Get") &&
                   find_symbol(api.thread_frame, "PyThreadState_GetFrame") &&
                   find_symbol(api.frame_back, "PyFrame_GetBack") &&
                   find_symbol(api.frame_code, "PyFrame_GetCode") &&
                   find_symbol(api.frame_line, "PyFrame_GetLineNumber") &&
                   find_symbol(api.attribute, "PyObject_GetAttrString") &&
                   find_symbol(api.utf8, "PyUnicode_AsUTF8") &&
                   find_symbol(api.unreference, "Py_DecRef") &&
                   find_symbol(api.clear_error, "PyErr_Clear");
  if (all) g_api = api;
  return all;
}

size_t python_frames_with_gil(FrameKey* frames, size_t capacity) noexcept {
  if (g_api.gil_ensure == nullptr) return 0;
  const int state = g_api.gil_ensure();
  size_t count = 0;
  Object* frame = g_api.thread_frame(g_api.thread_state());
  while (frame != nullptr && count < capacity) {
    Object* const code = g_api.frame_code(frame);
    FrameKey key;
    key.kind = FrameKind::kPython;
    key.line = g_api.frame_line(frame);
    key.function = text_attribute(code, "co_qualname");
    if (key.function == 0) key.function = text_attribute(code, "co_name");
    key.file = text_attribute(code, "co_filename");
    frames[count++] = key;
    g_api.unreference(code);
    Object* const back = g_api.frame_back(frame);
    g_api.unreference(frame);
    frame = back;
  }
  if (frame != nullptr) g_api.unreference(frame);
  g_api.gil_release(state);
  return count;
}

}  // namespace tidemark::injector
