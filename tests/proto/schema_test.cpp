// Compares the C++ tables with tidemark.proto, using the descriptors and classes from protoc.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "proto/column_codec.h"
#include "proto/tables.h"
#include "tests/support/random_rows.h"
#include "tidemark.pb.h"

namespace tidemark {
namespace {

namespace pb = google::protobuf;

const std::map<BlockKind, std::string>& message_names() {
  static const std::map<BlockKind, std::string> names = {
      {BlockKind::kProcesses, "Processes"},
      {BlockKind::kDevices, "Devices"},
      {BlockKind::kSettings, "Settings"},
      {BlockKind::kModules, "Modules"},
      {BlockKind::kFrames, "Frames"},
      {BlockKind::kStacks, "Stacks"},
      {BlockKind::kThreads, "Threads"},
      {BlockKind::kPools, "Pools"},
      {BlockKind::kNnModules, "NnModules"},
      {BlockKind::kDriverEvents, "DriverEvents"},
      {BlockKind::kFrameworkEvents, "FrameworkEvents"},
      {BlockKind::kOutOfMemory, "OutOfMemory"},
      {BlockKind::kSegmentStates, "SegmentStates"},
      {BlockKind::kBlockStates, "BlockStates"},
      {BlockKind::kCounters, "Counters"},
      {BlockKind::kKernels, "Kernels"},
      {BlockKind::kCopies, "Copies"},
      {BlockKind::kCommunicators, "Communicators"},
      {BlockKind::kNcclOperations, "NcclOperations"},
      {BlockKind::kMarks, "Marks"},
      {BlockKind::kTensorTags, "TensorTags"},
      {BlockKind::kClockSamples, "ClockSamples"},
      {BlockKind::kAlignments, "Alignments"},
      {BlockKind::kHealth, "Health"},
      {BlockKind::kSummaries, "Summaries"},
      {BlockKind::kIndex, "Index"},
  };
  return names;
}

const pb::Descriptor* descriptor_of(BlockKind kind) {
  // Any message of the file loads the whole pool.
  const pb::FileDescriptor* file = format::Strings::descriptor()->file();
  return file->FindMessageTypeByName(message_names().at(kind));
}

Coding coding_of(const pb::FieldDescriptor* field) {
  if (field->options().GetExtension(format::coding) == format::DELTA) return Coding::kDelta;
  return field->type() == pb::FieldDescriptor::TYPE_SINT64 ? Coding::kZigzag : Coding::kPlain;
}

// The value of a column's element as the bits in a row.
uint64_t element(const pb::Message& message, const pb::FieldDescriptor* field, int index) {
  const pb::Reflection* r = message.GetReflection();
  switch (field->cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      return r->GetRepeatedUInt32(message, field, index);
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return r->GetRepeatedUInt64(message, field, index);
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return static_cast<uint64_t>(r->GetRepeatedInt64(message, field, index));
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return static_cast<uint64_t>(r->GetRepeatedEnumValue(message, field, index));
    default:
      ADD_FAILURE() << field->full_name() << " has a type no table uses";
      return 0;
  }
}

void add_element(pb::Message& message, const pb::FieldDescriptor* field, uint64_t v) {
  const pb::Reflection* r = message.GetReflection();
  switch (field->cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      return r->AddUInt32(&message, field, static_cast<uint32_t>(v));
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return r->AddUInt64(&message, field, v);
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return r->AddInt64(&message, field, static_cast<int64_t>(v));
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return r->AddEnumValue(&message, field, static_cast<int>(v));
    default:
      ADD_FAILURE();
  }
}

template <typename Row>
class Schema : public testing::Test {};
template <typename List>
struct AsTypes;
template <typename... Rows>
struct AsTypes<RowList<Rows...>> {
  using type = testing::Types<Rows..., IndexEntry>;
};
TYPED_TEST_SUITE(Schema, AsTypes<RecordedRows>::type);

template <typename Row, typename Use>
void for_each_column(Use&& use) {
  [&]<typename... C>(std::tuple<C...>*) {
    (use(C{}), ...);
  }(static_cast<typename Table<Row>::Columns*>(nullptr));
}

TYPED_TEST(Schema, ColumnsAreTheFieldsOfTheMessage) {
  const pb::Descriptor* message = descriptor_of(Table<TypeParam>::kind);
  ASSERT_NE(message, nullptr);
  EXPECT_EQ(message->FindFieldByNumber(1)->name(), "rows");
  EXPECT_EQ(static_cast<size_t>(message->field_count()), codec_detail::kColumns<TypeParam> + 1);
  for_each_column<TypeParam>([&](auto column) {
    const pb::FieldDescriptor* field = message->FindFieldByNumber(static_cast<int>(column.field));
    ASSERT_NE(field, nullptr) << column.name;
    EXPECT_EQ(field->name(), column.name);
    EXPECT_TRUE(field->is_repeated() && field->is_packed()) << column.name;
    EXPECT_EQ(coding_of(field), column.coding) << column.name;
  });
}

TYPED_TEST(Schema, ProtobufReadsWhatTheWriterWrites) {
  std::mt19937_64 rng(11);
  const auto rows = random_rows<TypeParam>(300, rng);
  const auto bytes = encoded<TypeParam>(rows);
  const pb::Descriptor* descriptor = descriptor_of(Table<TypeParam>::kind);
  pb::DynamicMessageFactory factory;
  std::unique_ptr<pb::Message> message(factory.GetPrototype(descriptor)->New());
  ASSERT_TRUE(message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
  EXPECT_TRUE(message->GetReflection()->GetUnknownFields(*message).empty());
  for_each_column<TypeParam>([&](auto column) {
    const pb::FieldDescriptor* field =
        descriptor->FindFieldByNumber(static_cast<int>(column.field));
    const int size = message->GetReflection()->FieldSize(*message, field);
    ASSERT_TRUE(size == 300 || size == 0);
    uint64_t running = 0;
    for (int i = 0; i < 300; ++i) {
      uint64_t v = size == 0 ? 0 : element(*message, field, i);
      if (column.coding == Coding::kDelta) v = running += v;
      using T = std::remove_cvref_t<decltype(rows[0].*column.member)>;
      ASSERT_EQ(static_cast<T>(v), rows[static_cast<size_t>(i)].*column.member) << column.name;
    }
  });
}

TYPED_TEST(Schema, TheReaderReadsWhatProtobufWrites) {
  std::mt19937_64 rng(12);
  const auto rows = random_rows<TypeParam>(300, rng);
  const pb::Descriptor* descriptor = descriptor_of(Table<TypeParam>::kind);
  pb::DynamicMessageFactory factory;
  std::unique_ptr<pb::Message> message(factory.GetPrototype(descriptor)->New());
  message->GetReflection()->SetUInt32(message.get(), descriptor->FindFieldByNumber(1), 300);
  for_each_column<TypeParam>([&](auto column) {
    const pb::FieldDescriptor* field =
        descriptor->FindFieldByNumber(static_cast<int>(column.field));
    uint64_t previous = 0;
    for (const TypeParam& row : rows) {
      const uint64_t v = codec_detail::to_bits(row.*column.member);
      add_element(*message, field, column.coding == Coding::kDelta ? v - previous : v);
      previous = v;
    }
  });
  const std::string text = message->SerializeAsString();
  std::vector<TypeParam> back(300);
  ASSERT_TRUE(
      decode_rows<TypeParam>({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, back));
  EXPECT_TRUE(same<TypeParam>(rows, back));
}

TEST(SchemaEnums, NumbersAgree) {
  EXPECT_EQ(static_cast<int>(Category::kWorkspace), format::CATEGORY_WORKSPACE);
  EXPECT_EQ(static_cast<int>(FrameworkAction::kSnapshot), format::FRAMEWORK_ACTION_SNAPSHOT);
  EXPECT_EQ(static_cast<int>(DriverOperation::kGraphLaunch), format::DRIVER_OPERATION_GRAPH_LAUNCH);
  EXPECT_EQ(static_cast<int>(MemoryKind::kCode), format::MEMORY_KIND_CODE);
  EXPECT_EQ(static_cast<int>(HealthKind::kInputSkipped), format::HEALTH_KIND_INPUT_SKIPPED);
  EXPECT_EQ(static_cast<int>(CounterKind::kOwnHost), format::COUNTER_KIND_OWN_HOST);
  EXPECT_EQ(static_cast<int>(CounterKind::kTorchPinnedInUse),
            format::COUNTER_KIND_TORCH_PINNED_IN_USE);
  EXPECT_EQ(static_cast<int>(MarkKind::kUser), format::MARK_KIND_USER);
  EXPECT_EQ(static_cast<int>(MarkKind::kNotRecorded), format::MARK_KIND_NOT_RECORDED);
  EXPECT_EQ(static_cast<int>(CopyKind::kOther), format::COPY_KIND_OTHER);
  EXPECT_EQ(static_cast<int>(NcclKind::kCopyEngine), format::NCCL_KIND_COPY_ENGINE);
  EXPECT_EQ(static_cast<int>(FrameKind::kThread), format::FRAME_KIND_THREAD);
  EXPECT_EQ(static_cast<int>(Source::kSynthetic), format::SOURCE_SYNTHETIC);
  EXPECT_EQ(static_cast<int>(AlignmentMethod::kCollectives), format::ALIGNMENT_METHOD_COLLECTIVES);
  EXPECT_EQ(static_cast<int>(BlockCondition::kFree), format::BLOCK_CONDITION_FREE);
  EXPECT_EQ(static_cast<int>(SettingScope::kImported), format::SETTING_SCOPE_IMPORTED);
}

}  // namespace
}  // namespace tidemark
