// A library that has nothing of the driver but the name: what loads it counts as a CUDA program.
extern "C" int named_cuda() {
  return 0;
}
