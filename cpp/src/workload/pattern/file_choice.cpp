// SPDX-License-Identifier: MIT
#include "pattern/file_choice.hpp"

#include <algorithm>
#include <numeric>

namespace sampleblk::workload {

namespace {

// As in fio, a file is 2^10 places of the skewed distribution; over as few as the files its last one is never drawn.
constexpr unsigned place_bits = 10;

Distribution distribution_of(FileService service) {
    return service == FileService::zipf     ? Distribution::zipf
           : service == FileService::pareto ? Distribution::pareto
                                            : Distribution::normal;
}

}  // namespace

FileChoice::FileChoice(const JobPlan& plan, std::vector<FileState>& files, FileOpener& opener)
    : plan_(plan),
      options_(plan.options),
      files_(files),
      opener_(opener),
      random_(stream(plan.seed, Stream::file)),
      open_limit_(options_.openfiles == 0 ? UINT32_MAX : options_.openfiles) {
    if (is_skewed()) {
        const Distribution kind = distribution_of(options_.file_service);
        double parameter = options_.file_service_parameter;
        if (parameter == 0 && kind != Distribution::normal) {
            parameter = kind == Distribution::zipf ? 1.1 : 0.2;
        }
        skewed_ = SkewedChoice(kind, std::uint64_t{files_.size()} << place_bits, parameter, -1,
                               mix64(plan.seed ^ 0xf11e), true);
    }
}

void FileChoice::begin_pass() {
    if (options_.randrepeat) {
        random_ = stream(plan_.seed, Stream::file);
    }
    live_.resize(files_.size());
    std::iota(live_.begin(), live_.end(), 0U);
    place_ = live_;
    next_live_.resize(files_.size() + 1);  // the last one is the end
    std::iota(next_live_.begin(), next_live_.end(), 0U);
    for (FileState& file : files_) {
        file.done = false;
    }
}

// The first file from this one on that is not done, or the number of files.
std::size_t FileChoice::live_from(std::size_t number) {
    while (next_live_[number] != number) {
        next_live_[number] = next_live_[next_live_[number]];
        number = next_live_[number];
    }
    return number;
}

std::size_t FileChoice::draw() {
    if (is_skewed()) {
        return static_cast<std::size_t>(skewed_.next() >> place_bits);
    }
    if (options_.file_service == FileService::random) {
        return live_[static_cast<std::size_t>(random_.below(live_.size()))];
    }
    std::size_t number = live_from(next_);
    number = number == files_.size() ? live_from(0) : number;
    next_ = number + 1 == files_.size() ? 0 : number + 1;
    return number;
}

FileState* FileChoice::choose(bool& busy) {
    if (live_.empty()) {
        return nullptr;
    }
    if (current_ != nullptr && current_->is_open() && !current_->done) {
        if (options_.file_service == FileService::sequential) {
            return current_;
        }
        if (current_left_ != 0) {
            --current_left_;
            return current_;
        }
    }
    FileState& chosen = files_[draw()];
    if (!chosen.is_open() && opener_.open_files() >= open_limit_ && !close_done()) {
        busy = true;
        return nullptr;
    }
    current_ = &chosen;
    current_left_ = options_.file_service_count - 1;
    return current_;
}

// A file that is done and open was opened again to be read back, in a run that verifies as it writes.
bool FileChoice::close_done() {
    const auto file = std::ranges::find_if(
        files_, [](const FileState& each) { return each.done && each.is_open() && each.in_flight == 0; });
    if (file == files_.end()) {
        return false;
    }
    opener_.close(*file);
    return true;
}

void FileChoice::finish(FileState& file) {
    file.done = true;
    next_live_[file.number] = file.number + 1;
    const std::uint32_t place = place_[file.number];
    live_[place] = live_.back();
    place_[live_[place]] = place;
    live_.pop_back();
}

bool FileChoice::is_skewed() const noexcept {
    return workload::is_skewed(options_.file_service);
}

}  // namespace sampleblk::workload
