// What torch's headers need of the CUDA runtime's.
#pragma once

typedef struct CUstream_st* cudaStream_t;
