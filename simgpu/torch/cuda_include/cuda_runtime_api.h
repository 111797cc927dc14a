// What torch's headers need from the CUDA runtime.
#pragma once

typedef struct CUstream_st* cudaStream_t;
