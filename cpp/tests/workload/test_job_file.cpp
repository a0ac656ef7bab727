// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "sampleblk/error.hpp"
#include "sampleblk/workload/job_file.hpp"
#include "sampleblk/workload/keys.hpp"

namespace sampleblk::workload {
namespace {

// The error that a text gives, to look at its parts.
InputError refusal(const std::string& text) {
    try {
        (void)parse_job_text(text, "file.fio");
    } catch (const InputError& error) {
        return error;
    }
    ADD_FAILURE() << "accepted: " << text;
    return InputError("none");
}

TEST(JobFile, ReadsTheArticlesFile) {
    const JobSet set = read_job_file(SAMPLEBLK_TEST_DATA "/jobs/fs_seq_write_sync_001");
    ASSERT_EQ(set.jobs.size(), 2U);
    EXPECT_EQ(set.jobs[0].name, "job1");
    EXPECT_EQ(set.jobs[1].name, "job2");
    for (const JobOptions& job : set.jobs) {
        EXPECT_EQ(job.filename, "/mnt/test");
        EXPECT_TRUE(job.writes);
        EXPECT_FALSE(job.reads || job.random);
        EXPECT_EQ(job.engine, Engine::sync);
        EXPECT_EQ(job.bs[1], 4096U);
        EXPECT_EQ(job.size.bytes, 2U << 20);
        EXPECT_EQ(job.loops, 1'000'000U);
        EXPECT_EQ(job.group_id, 0U);
    }
    EXPECT_EQ(set.globals.size(), 7U);
}

TEST(JobFile, OverridesHaveTheLastWord) {
    const JobSet set = read_job_file(SAMPLEBLK_TEST_DATA "/jobs/fs_seq_write_sync_001", {{"loops", "20"}});
    EXPECT_EQ(set.jobs[1].loops, 20U);
}

TEST(JobFile, GlobalHoldsForWhatComesBelow) {
    const JobSet set = parse_job_text("[a]\nsize=1k\n[global]\nbs=8k\n[b]\nsize=1M\n[global]\nsize=2M\n[c]\n", "x");
    EXPECT_EQ(set.jobs[0].bs[0], 4096U);
    EXPECT_EQ(set.jobs[1].bs[0], 8192U);
    EXPECT_EQ(set.jobs[1].size.bytes, 1U << 20);
    EXPECT_EQ(set.jobs[2].size.bytes, 2U << 20);
}

TEST(JobFile, UnknownKeysNameFileLineAndTheNearestKey) {
    const InputError error = refusal("[global]\n; a comment\nrw=read ; another\n[job1]\nblokcsize=4k\n");
    EXPECT_EQ(error.source(), "file.fio");
    EXPECT_EQ(error.line(), 5U);
    EXPECT_NE(error.message().find("'blokcsize'"), std::string::npos);
    EXPECT_NE(error.expected().find("'blocksize'"), std::string::npos);
}

TEST(JobFile, BadValuesNameTheValueAndWhatWouldBeTaken) {
    const InputError error = refusal("[j]\nrw=sideways\n");
    EXPECT_EQ(error.line(), 2U);
    EXPECT_NE(error.message().find("'sideways'"), std::string::npos);
    EXPECT_NE(error.expected().find("randread"), std::string::npos);
    EXPECT_EQ(refusal("[j]\nsize=4x\n").line(), 2U);
    EXPECT_EQ(refusal("rw=read\n[j]\n").line(), 1U);
    EXPECT_EQ(refusal("[j]\nsize=1M\ntime_based\n").line(), 1U);  // the section whose keys contradict
}

TEST(JobFile, AByteZeroDoesNotEndAName) {
    const std::string end(1, '\0');
    EXPECT_EQ(refusal("[j]\nsize=1M\nfilename=a" + end + "b\n").line(), 3U);
    EXPECT_EQ(refusal("[j" + end + "k]\nsize=1M\n").line(), 1U);
}

TEST(JobFile, UnsupportedKeysSayWhetherTheyMatter) {
    const InputError error = refusal("[j]\nsize=1M\nhostname=example\n");
    EXPECT_EQ(error.line(), 3U);
    EXPECT_NE(error.message().find("would change the result"), std::string::npos);
    const JobSet set = parse_job_text("[j]\nsize=1M\ngtod_cpu=1\n", "file.fio");
    ASSERT_EQ(set.notices.size(), 1U);
    EXPECT_EQ(set.notices[0].line, 3U);
    EXPECT_EQ(set.notices[0].key, "gtod_cpu");
}

TEST(JobFile, ExpandsEnvironmentAndKeywords) {
    ASSERT_EQ(::setenv("SBLK_TEST_SIZE", "3M", 1), 0);
    const JobSet set = parse_job_text("[j]\nsize=${SBLK_TEST_SIZE}\nbs=2*$pagesize\nnumjobs=$ncpus\n", "x");
    EXPECT_EQ(set.jobs[0].size.bytes, 3U << 20);
    EXPECT_EQ(set.jobs[0].bs[0] % 8192, 0U);
    EXPECT_EQ(refusal("[j]\nsize=${SBLK_NO_SUCH_VARIABLE}\n").line(), 2U);
    // As bc, whatever the key: a file's name, too, and 3 / 2 is 1.
    const std::string pages = "[j]\nsize=1M\nfilename=$pagesize/1000*2\nbs=$pagesize/2730*512\n";
    const JobSet calculated = parse_job_text(pages, "x");
    EXPECT_EQ(calculated.jobs[0].filename, std::to_string(::sysconf(_SC_PAGESIZE) / 1000 * 2));
    EXPECT_EQ(calculated.jobs[0].bs[0], static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE) / 2730 * 512));
    EXPECT_EQ(refusal("[j]\nsize=1M\nbs=$pagesize/0\n").line(), 3U);
}

TEST(JobFile, Includes) {
    const auto directory = std::filesystem::temp_directory_path() / ("sblk_include_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory);
    std::ofstream(directory / "common.fio") << "bs=16k\nbogus_key=1\n";
    std::ofstream(directory / "main.fio") << "[j]\nsize=1M\ninclude common.fio\n";
    std::ofstream(directory / "begin.fio") << "[j]\ninclude loop.fio\n";
    std::ofstream(directory / "loop.fio") << "include loop.fio\n";
    try {
        (void)read_job_file((directory / "main.fio").string());
        ADD_FAILURE();
    } catch (const InputError& error) {
        EXPECT_EQ(error.source(), (directory / "common.fio").string());
        EXPECT_EQ(error.line(), 2U);
    }
    std::ofstream(directory / "common.fio") << "bs=16k\n";
    EXPECT_EQ(read_job_file((directory / "main.fio").string()).jobs[0].bs[0], 16384U);
    EXPECT_THROW((void)read_job_file((directory / "begin.fio").string()), InputError);
    std::filesystem::remove_all(directory);
}

TEST(JobFile, NumjobsMakesCopiesInOneGroup) {
    const JobSet set = parse_job_text("[a]\nsize=1M\nnumjobs=3\n[b]\nsize=1M\nstonewall\n[c]\nsize=1M\n", "x");
    ASSERT_EQ(set.jobs.size(), 5U);
    EXPECT_EQ(set.jobs[2].subjob_number, 2U);
    EXPECT_EQ(set.jobs[2].group_id, 0U);
    EXPECT_EQ(set.jobs[3].group_id, 1U);
    EXPECT_EQ(set.jobs[4].group_id, 1U);
}

TEST(JobFile, KbBaseCountsForSizesAboveIt) {
    EXPECT_EQ(parse_job_text("[j]\nsize=4k\nkb_base=1000\n", "x").jobs[0].size.bytes, 4000U);
    EXPECT_EQ(parse_job_text("[global]\nsize=4k\n[j]\nkb_base=1000\n", "x").jobs[0].size.bytes, 4000U);
}

TEST(JobFile, PatternForms) {
    const JobOptions skip = parse_job_text("[j]\nsize=1M\nrw=read:-8k\n", "x").jobs[0];
    EXPECT_EQ(skip.sequential_add, -8192);
    const JobOptions burst = parse_job_text("[j]\nsize=1M\nrw=randread:8\n", "x").jobs[0];
    EXPECT_EQ(burst.sequence_length, 8U);
    const JobOptions triple = parse_job_text("[j]\nsize=1M\nbs=4k,8k,16k\n", "x").jobs[0];
    EXPECT_EQ(triple.bs[2], 16384U);
    const JobOptions range = parse_job_text("[j]\nsize=1M\nbsrange=1k-4k,2k-8k\n", "x").jobs[0];
    EXPECT_EQ(range.max_bs[1], 8192U);
    const JobOptions split = parse_job_text("[j]\nsize=1M\nbssplit=4k/10:64k/50:32k/\n", "x").jobs[0];
    ASSERT_EQ(split.bssplit[0].size(), 3U);
    EXPECT_EQ(split.bssplit[0][2].percent, 40U);
    EXPECT_EQ(split.min_bs[0], 4096U);
    (void)refusal("[j]\nsize=1M\nbssplit=4k/60:8k/60\n");
    const JobOptions zoned =
        parse_job_text("[j]\nsize=1M\nrandom_distribution=zoned:60/10:30/20:8/30:2/40\n", "x").jobs[0];
    EXPECT_EQ(zoned.zones[1].size(), 4U);
    (void)refusal("[j]\nsize=1M\nrandom_distribution=zipf:1\n");
    EXPECT_EQ(refusal("[j]\nsize=1M\nbsrange=8k\n").line(), 3U) << "as fio";
}

// lib/pattern.c of fio 3.33 has these in its own comments.
TEST(JobFile, DataPatternsAreFios) {
    const auto bytes = [](const std::string& pattern) {
        return parse_job_text("[j]\nsize=1M\nverify_pattern=" + pattern + "\n", "x").jobs[0].verify_pattern.bytes;
    };
    using namespace std::string_literals;
    EXPECT_EQ(bytes("\"abcd\""), "abcd");
    EXPECT_EQ(bytes("-1024"), "\x00\xfc\xff\xff"s);
    EXPECT_EQ(bytes("66"), "\x42");
    EXPECT_EQ(bytes("0xFF0X1"), "\xff\x01");
    EXPECT_EQ(bytes("\"123\"0xFFeeCC"), "123\xff\xee\xcc");
    EXPECT_EQ(bytes("-100xab\"1\"%o\"2\""), "\xf6\xff\xff\xff\xab\x31\0\0\0\0\0\0\0\0\x32"s);
    EXPECT_EQ(bytes("-120xdeadface"), "\xf4\xff\xff\xff\xde\xad\xfa\xce"s);
    EXPECT_EQ(bytes("0x5"), "\x05");
    EXPECT_EQ(bytes("0"), "\0"s);
    (void)refusal("[j]\nsize=1M\nverify_pattern=4294967296\n");
    const InputError missing = refusal("[j]\nsize=1M\nverify_pattern='/no/such/file'\n");
    EXPECT_EQ(missing.line(), 3U);
    EXPECT_EQ(missing.source(), "file.fio");
    EXPECT_NE(missing.message().find("No such file"), std::string::npos) << missing.message();
}

TEST(JobFile, NumbersThatTheirFieldsCannotHoldAreRefused) {
    for (const char* line :
         {"openfiles=4294967296", "replay_time_scale=4294967297", "file_service_type=random:4294967297",
          "runtime=(18446744075)", "thinktime=(18446744073709552)", "startdelay=(9999999999)", "ramp_time=99999999999",
          "iodepth=99999999999", "rate_iops=9223372036854775807", "percentage_random=101"}) {
        const InputError error = refusal(std::string("[j]\nsize=1M\nrw=randwrite\n") + line + "\n");
        EXPECT_TRUE(error.line() == 4 || error.line() == 1) << line;
    }
    EXPECT_EQ(parse_job_text("[j]\nsize=1M\nopenfiles=4294967295\n", "x").jobs[0].openfiles, 4294967295U);
}

// blockalign other than the block size: fio warns and does without the map.
TEST(JobFile, BlockalignTurnsTheRandomMapOff) {
    const JobSet set = parse_job_text("[j]\nrw=randwrite\nbs=4k\nblockalign=512\nsize=1M\n", "x.fio");
    EXPECT_TRUE(set.jobs[0].norandommap);
    ASSERT_EQ(set.notices.size(), 1U);
    EXPECT_EQ(set.notices[0].key, "blockalign");
    EXPECT_EQ(set.notices[0].source, "x.fio");
    EXPECT_EQ(set.notices[0].line, 1U);
    for (const char* same :
         {"[j]\nrw=randwrite\nbs=4k\nblockalign=4k\nsize=1M\n", "[j]\nrw=write\nbs=4k\nblockalign=512\nsize=1M\n"}) {
        const JobSet kept = parse_job_text(same, "x.fio");
        EXPECT_FALSE(kept.jobs[0].norandommap);
        EXPECT_TRUE(kept.notices.empty());
        EXPECT_EQ(kept.jobs[0].align[1], 4096U);
    }
}

TEST(JobFile, SyncsOfATrimwriteAreToldToHaveNoEffect) {
    const JobSet set = parse_job_text("[j]\nrw=trimwrite\nfsync=1\nfdatasync=2\nsize=1M\n", "x.fio");
    ASSERT_EQ(set.notices.size(), 2U);
    EXPECT_EQ(set.notices[0].key, "fsync");
    EXPECT_EQ(set.notices[1].key, "fdatasync");
    EXPECT_TRUE(parse_job_text("[j]\nrw=write\nfsync=1\nsize=1M\n", "x.fio").notices.empty());
}

TEST(JobFile, TrimwriteTakesATripleOfSizes) {
    const JobOptions job = parse_job_text("[j]\nrw=trimwrite\nbs=4k,8k,16k\nsize=1M\n", "x").jobs[0];
    EXPECT_EQ(job.min_bs[1], 8192U);
    EXPECT_EQ(job.min_bs[2], 16384U);
}

TEST(JobFile, ValuesThatFioHasAndWeDoNotAreNotUnknown) {
    for (const char* line : {"zonemode=zbd", "io_submit_mode=offload", "dedupe_mode=working_set", "ioengine=dircreate",
                             "mem=cudamalloc", "ioengine=external:/lib/x.so"}) {
        const InputError error = refusal(std::string("[j]\nsize=1M\n") + line + "\n");
        EXPECT_NE(error.message().find("is not supported"), std::string::npos) << error.message();
        EXPECT_EQ(error.line(), 3U);
    }
    EXPECT_NE(refusal("[j]\nsize=1M\nzonemode=zdb\n").message().find("is not known"), std::string::npos);
}

// fio's rules for verify_interval (fixup_options() of 3.33).
TEST(JobFile, VerifyIntervalsDivideTheBlocks) {
    const auto interval = [](const std::string& keys) {
        return parse_job_text("[j]\nrw=write\nsize=1M\nverify=crc32c\n" + keys, "x").jobs[0].verify_interval_bytes;
    };
    EXPECT_EQ(interval("bs=4k\n"), 4096U);
    EXPECT_EQ(interval("bs=16k\nverify_interval=4k\n"), 4096U);
    EXPECT_EQ(interval("bs=4k\nverify_interval=1m\n"), 4096U);
    EXPECT_EQ(interval("bs=16k\nverify_interval=5000\n"), 16384U);
    EXPECT_EQ(interval("bsrange=4k-16k\n"), 4096U);
    EXPECT_EQ(interval("bsrange=4k-10k\n"), 2048U);
    EXPECT_EQ(interval("bsrange=4k-16k\nbs_unaligned=1\n"), 0U) << "each I/O is one";
}

TEST(JobFile, CommandLine) {
    const JobSet set = parse_command_line({"--bs=8k", "--size=1M", "--name=a", "--rw=write", "--name=b"});
    ASSERT_EQ(set.jobs.size(), 2U);
    EXPECT_TRUE(set.jobs[0].writes);
    EXPECT_EQ(set.jobs[1].bs[0], 8192U);
    EXPECT_THROW((void)parse_command_line({"job.fio"}), InputError);
}

TEST(JobFile, WritesWhatItRead) {
    const JobSet set =
        parse_job_text("[global]\nbs=8k\n[a]\nsize=1M\nnumjobs=2\nstonewall\n[b]\nrw=write\nsize=2M\n", "x");
    const JobSet again = parse_job_text(write_job_file(set), "y");
    ASSERT_EQ(again.jobs.size(), set.jobs.size());
    EXPECT_EQ(write_job_file(again), write_job_file(set));
    EXPECT_EQ(again.jobs[2].bs[1], 8192U);
}

// A job has the settings of the [global] sections above it, and not of those below.
TEST(JobFile, WritesGlobalsWhereTheyStood) {
    const JobSet set = parse_job_text("[global]\nsize=1M\n[a]\nnumjobs=2\n[b]\n[global]\nbs=8k\n[c]\n", "x");
    const JobSet again = parse_job_text(write_job_file(set), "y");
    ASSERT_EQ(again.jobs.size(), 4U);
    for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(again.jobs[i].bs[0], i < 3 ? 4096U : 8192U);
        EXPECT_EQ(again.jobs[i].size.bytes, 1U << 20);
    }
}

// What would be read as something else is not written.
TEST(JobFile, RefusesToWriteWhatItCouldNotRead) {
    for (const char* value : {"a#b", "a;b", "${a}", "a\nb", " a", "a ", "\xff"}) {
        EXPECT_THROW((void)write_job_file(make_job({{"size", "4k"}, {"filename", value}})), InputError) << value;
    }
    EXPECT_THROW((void)write_job_file(make_job({{"size", "4k"}, {"name", "a#b"}})), InputError);
    EXPECT_EQ(make_job({{"filename", "a "}}).jobs[0].filename, "a ");
}

TEST(Keys, NamesAndAliasesAreUniqueAndSupportedKeysCanBeApplied) {
    std::set<std::string> names;
    for (const Key& key : all_keys()) {
        EXPECT_TRUE(names.insert(std::string(key.name)).second) << key.name;
        for (const auto alias : split(key.alias, ' ')) {
            if (!alias.empty()) {
                EXPECT_TRUE(names.insert(std::string(alias)).second) << alias;
            }
        }
        EXPECT_EQ(key.apply != nullptr, key.support == Support::full) << key.name;
        EXPECT_FALSE(key.help.empty()) << key.name;
    }
}

}  // namespace
}  // namespace sampleblk::workload
