// Kernel names as recorded on a GPU.
#include "analysis/load/precision.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

TEST(Precision, OfMatrixProducts) {
  for (const char* name :
       {"_ZN7cutlass7Kernel2I43cutlass_80_simt_sgemm_128x256_8x4_nt_align1EEvNT_6ParamsE",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_ffma_aligna4_alignc4",
        "_Z40fmha_cutlassB_f32_aligned_64x64_k64_sm80N22PyTorchMemEffAttention",
        "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", "nvjet_sm90_sss_64x96_64x10_2x1"}) {
    EXPECT_EQ(precision_of(name), Precision::kFloat32) << name;
  }
  for (const char* name :
       {"nvjet_sm90_hsh_64x96_64x10_2x1_v_bz_NNT", "nvjet_sm90_tst_64x96_64x10_2x1_v_bz_NNT",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64",
        "_ZN2at6native13reduce_kernelILi128ELi4ENS0_8ReduceOpIN3c104HalfENS0_14func_wrapper_t",
        "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_11FillFunctorIN3c108BFloat16EEE",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn"}) {
    EXPECT_EQ(precision_of(name), Precision::kHalf) << name;
  }
  for (const char* name :
       {"", "nvjet", "nvjet_sm90", "nvjet_sm90_",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIf"
        "EESt5arrayIPcLm3EEEEviT0_T1_"}) {
    EXPECT_EQ(precision_of(name), Precision::kUnknown) << name;
  }
}

TEST(Precision, AFewHalfKernelsDoNotMakeItMixed) {
  ComputeTime time;
  EXPECT_FALSE(time.is_float32());  // nothing is known
  time.add(Precision::kFloat32, 1000);
  time.add(Precision::kUnknown, 1000);
  EXPECT_TRUE(time.is_float32());
  time.add(Precision::kHalf, 49);
  EXPECT_TRUE(time.is_float32());
  time.add(Precision::kHalf, 1);
  EXPECT_FALSE(time.is_float32());
}

}  // namespace
}  // namespace tidemark
