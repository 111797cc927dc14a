// A library that tests load and unload while other threads unwind through it.
extern "C" int plugin_call(int (*function)(void*), void* context) {
  volatile int keep = function(context);  // no tail call: this frame must stay on the stack
  return keep + 1;
}
