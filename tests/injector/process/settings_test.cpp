// Options, the rank in the job, and which parts of the environment may be recorded.
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <string>

#include "injector/process/options.h"
#include "injector/process/process_facts.h"

namespace tidemark::injector {
namespace {

std::map<std::string, std::string> g_environment;

const char* lookup(const char* name) {
  const auto found = g_environment.find(name);
  return found != g_environment.end() ? found->second.c_str() : nullptr;
}

Options options_of(std::map<std::string, std::string> environment) {
  g_environment = std::move(environment);
  return read_options(lookup);
}

JobPlace place_of(std::map<std::string, std::string> environment) {
  g_environment = std::move(environment);
  return find_job_place(lookup);
}

std::string job_of(std::map<std::string, std::string> environment) {
  g_environment = std::move(environment);
  char buffer[64];
  return std::string(find_job_id(lookup, buffer, sizeof buffer));
}

TEST(CaptureOptions, DefaultsWithoutAnything) {
  const Options options = options_of({});
  EXPECT_EQ(options.out, nullptr);
  EXPECT_TRUE(options.cupti);
  EXPECT_TRUE(options.kernels);
  EXPECT_FALSE(options.copies);
  EXPECT_TRUE(options.driver_stacks());
  EXPECT_EQ(options.nvml_hz, 10u);
  EXPECT_EQ(options.buffer_mb, 64u);
  EXPECT_EQ(options.complaint, nullptr);
}

TEST(CaptureOptions, EveryVariableIsRead) {
  const Options options = options_of({{"TIDEMARK_OUT", "/tmp/x"},
                                      {"TIDEMARK_STACKS", "none"},
                                      {"TIDEMARK_KERNELS", "0"},
                                      {"TIDEMARK_MODULES", "0"},
                                      {"TIDEMARK_COPIES", "1"},
                                      {"TIDEMARK_NCCL", "off"},
                                      {"TIDEMARK_TORCH", "0"},
                                      {"TIDEMARK_CUPTI", "0"},
                                      {"TIDEMARK_NVML_HZ", "2"},
                                      {"TIDEMARK_BUFFER_MB", "128"},
                                      {"TIDEMARK_CHAIN", "/opt/other.so"}});
  EXPECT_STREQ(options.out, "/tmp/x");
  EXPECT_FALSE(options.driver_stacks());
  EXPECT_FALSE(options.kernels);
  EXPECT_FALSE(options.modules);
  EXPECT_TRUE(options.copies);
  EXPECT_FALSE(options.nccl);
  EXPECT_FALSE(options.torch);
  EXPECT_FALSE(options.cupti);
  EXPECT_EQ(options.nvml_hz, 2u);
  EXPECT_EQ(options.buffer_mb, 128u);
  EXPECT_STREQ(options.chain, "/opt/other.so");
}

TEST(CaptureOptions, InvalidValuesKeepTheDefaultAndAreNamed) {
  const Options options = options_of({{"TIDEMARK_KERNELS", "perhaps"}, {"TIDEMARK_NVML_HZ", "-3"}});
  EXPECT_TRUE(options.kernels);
  EXPECT_EQ(options.nvml_hz, 10u);
  EXPECT_STREQ(options.complaint, "TIDEMARK_KERNELS");
  EXPECT_STREQ(options_of({{"TIDEMARK_BUFFER_MB", "64x"}}).complaint, "TIDEMARK_BUFFER_MB");
}

TEST(CaptureOptions, AWindowAndWhenItIsSealed) {
  const Options options = options_of({{"TIDEMARK_KEEP", "10m,512MiB"},
                                      {"TIDEMARK_SEAL_ABOVE", "60GiB"},
                                      {"TIDEMARK_SEAL_SIGNAL", "SIGUSR2"}});
  EXPECT_EQ(options.keep.ns, 600'000'000'000);
  EXPECT_EQ(options.keep.bytes, uint64_t{512} << 20);
  EXPECT_EQ(options.seal_above_bytes, uint64_t{60} << 30);
  EXPECT_EQ(options.seal_signal, SIGUSR2);
  EXPECT_EQ(options.complaint, nullptr);
  EXPECT_EQ(options_of({{"TIDEMARK_SEAL_SIGNAL", "RTMIN+3"}}).seal_signal, SIGRTMIN + 3);
  for (const char* unusable : {"KILL", "SEGV", "RTMIN+99", "RTMIN+", "12"}) {
    const Options none = options_of({{"TIDEMARK_SEAL_SIGNAL", unusable}});
    EXPECT_EQ(none.seal_signal, 0);
    EXPECT_STREQ(none.complaint, "TIDEMARK_SEAL_SIGNAL");
  }
}

TEST(CaptureOptions, EmptyMeansUnset) {
  const Options options = options_of({{"TIDEMARK_OUT", ""}, {"TIDEMARK_CUPTI", ""}});
  EXPECT_EQ(options.out, nullptr);
  EXPECT_TRUE(options.cupti);
  EXPECT_EQ(options.complaint, nullptr);
}

TEST(CaptureOptions, PollingIsBounded) {
  EXPECT_EQ(options_of({{"TIDEMARK_NVML_HZ", "100000"}}).nvml_hz, kMaxNvmlHz);
}

TEST(CapturePlace, NoLauncherNoRank) {
  const JobPlace place = place_of({});
  EXPECT_EQ(place.rank, -1);
  EXPECT_EQ(place.world_size, 0u);
}

TEST(CapturePlace, TorchrunInsideSlurmWins) {
  const JobPlace place = place_of({{"RANK", "5"},
                                   {"LOCAL_RANK", "1"},
                                   {"WORLD_SIZE", "8"},
                                   {"SLURM_PROCID", "1"},
                                   {"SLURM_STEP_ID", "0"},
                                   {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.world_size, 8u);
}

TEST(CapturePlace, ARankAloneIsNotTorchrun) {
  EXPECT_EQ(place_of({{"RANK", "5"}}).rank, -1);
}

TEST(CapturePlace, OpenMpiInsideSlurmWins) {
  const JobPlace place = place_of({{"OMPI_COMM_WORLD_RANK", "3"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"SLURM_PROCID", "0"},
                                   {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.world_size, 4u);
}

TEST(CapturePlace, SlurmStepCountsButABatchScriptDoesNot) {
  const JobPlace step = place_of({{"SLURM_PROCID", "7"},
                                  {"SLURM_LOCALID", "3"},
                                  {"SLURM_STEP_ID", "1"},
                                  {"SLURM_STEP_NUM_TASKS", "16"}});
  EXPECT_EQ(step.rank, 7);
  EXPECT_EQ(step.local_rank, 3);
  EXPECT_EQ(step.world_size, 16u);
  EXPECT_EQ(place_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}).rank, -1);
}

TEST(CapturePlace, OtherMpis) {
  EXPECT_EQ(place_of({{"MV2_COMM_WORLD_RANK", "2"}, {"MV2_COMM_WORLD_SIZE", "4"}}).rank, 2);
  EXPECT_EQ(place_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).world_size, 2u);
  const JobPlace pmix =
      place_of({{"PMIX_RANK", "6"}, {"PMIX_NAMESPACE", "job.1"}, {"SLURM_NTASKS", "8"}});
  EXPECT_EQ(pmix.rank, 6);
  EXPECT_EQ(pmix.world_size, 8u);
}

TEST(CapturePlace, InvalidValuesAreNoRank) {
  EXPECT_EQ(place_of({{"RANK", "x"}, {"WORLD_SIZE", "2"}}).rank, -1);
  EXPECT_EQ(place_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).rank, -1);
}

TEST(CaptureJob, FromTheLauncherElseFromTidemark) {
  EXPECT_EQ(job_of({{"TORCHELASTIC_RUN_ID", "abc"}, {"SLURM_JOB_ID", "12"}}), "abc");
  EXPECT_EQ(job_of({{"TORCHELASTIC_RUN_ID", "none"}, {"SLURM_JOB_ID", "12"}}), "slurm-12");
  EXPECT_EQ(job_of({{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}}), "slurm-12.3");
  EXPECT_EQ(job_of({{"PMIX_NAMESPACE", "ns"}, {"TIDEMARK_JOB", "t"}}), "ns");
  EXPECT_EQ(job_of({{"TIDEMARK_JOB", "t"}}), "t");
  EXPECT_EQ(job_of({}), "");
  EXPECT_EQ(job_of({{"TIDEMARK_JOB", std::string(1000, 'x')}}).size(), 64u);
}

TEST(CaptureSettings, OnlyTheAllowedOnes) {
  EXPECT_TRUE(is_recorded_setting("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"));
  EXPECT_TRUE(is_recorded_setting("PYTORCH_ALLOC_CONF", "x"));
  EXPECT_TRUE(is_recorded_setting("NCCL_BUFFSIZE", "4194304"));
  EXPECT_TRUE(is_recorded_setting("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"));
  EXPECT_TRUE(is_recorded_setting("CUDA_VISIBLE_DEVICES", "0,1"));
  EXPECT_TRUE(is_recorded_setting("WORLD_SIZE", "8"));
  EXPECT_TRUE(is_recorded_setting("TIDEMARK_OUT", "/scratch/x"));
  EXPECT_FALSE(is_recorded_setting("CUDA_HOME", "/home/me/cuda"));
  EXPECT_FALSE(is_recorded_setting("PATH", "/bin"));
  EXPECT_FALSE(is_recorded_setting("AWS_SECRET_ACCESS_KEY", "x"));
  EXPECT_FALSE(is_recorded_setting("HF_TOKEN", "x"));
  EXPECT_FALSE(is_recorded_setting("NCCL_AUTH_TOKEN", "x"));
  EXPECT_FALSE(is_recorded_setting("TIDEMARK_UPLOAD", "https://me:pw@host"));
  EXPECT_FALSE(is_recorded_setting("PYTORCH_BUILD", "x"));
  EXPECT_FALSE(is_recorded_setting("XNCCL_DEBUG", "INFO"));
}

std::string command_of(const std::string& arguments) {
  char buffer[256];
  return std::string(readable_command(arguments, buffer, sizeof buffer));
}

TEST(CaptureCommand, ReadsLikeAShellLineWithoutSecrets) {
  using namespace std::string_literals;
  EXPECT_EQ(command_of("python3\0train.py\0--lr\0003\0"s), "python3 train.py --lr 3");
  EXPECT_EQ(command_of("x\0--api-key=abc\0--n=1\0"s), "x --api-key=*** --n=1");
  EXPECT_EQ(command_of("x\0--hf-token\0abc\0run\0"s), "x --hf-token *** run");
  EXPECT_EQ(command_of("HF_TOKEN=abc\0"s), "HF_TOKEN=***");
  EXPECT_EQ(command_of(""), "");
  EXPECT_EQ(command_of(std::string(1000, 'a')).size(), 256u);
}

}  // namespace
}  // namespace tidemark::injector
