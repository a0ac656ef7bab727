// SPDX-License-Identifier: MIT
#include "file_choice.hpp"

#include <algorithm>

namespace sampleblk::workload {

FileChoice::FileChoice(const JobPlan& plan, std::vector<FileState>& files)
    : plan_(plan), options_(plan.options), files_(files), random_(stream(plan.seed, Stream::file)) {
    open_limit_ = options_.openfiles == 0 ? static_cast<std::uint32_t>(files.size()) : options_.openfiles;
    if (options_.file_service == FileService::zipf || options_.file_service == FileService::pareto ||
        options_.file_service == FileService::normal) {
        const Distribution kind = options_.file_service == FileService::zipf     ? Distribution::zipf
                                  : options_.file_service == FileService::pareto ? Distribution::pareto
                                                                                 : Distribution::normal;
        double parameter = options_.file_service_parameter;
        if (parameter == 0 && kind != Distribution::normal) {
            parameter = kind == Distribution::zipf ? 1.1 : 0.2;
        }
        skewed_ = SkewedChoice(kind, files_.size(), parameter, -1, mix64(plan.seed ^ 0xf11e), true);
    }
}

void FileChoice::begin_pass() {
    if (options_.randrepeat) {
        random_ = stream(plan_.seed, Stream::file);
    }
    done_ = 0;
    for (FileState& file : files_) {
        file.done = false;
    }
}

bool FileChoice::usable(const FileState& file, bool& busy) const {
    if (file.done) {
        return false;
    }
    if (!file.is_open()) {
        const auto open = std::ranges::count_if(files_, [](const FileState& one) { return one.is_open(); });
        if (static_cast<std::uint32_t>(open) >= open_limit_) {
            busy = true;
            return false;
        }
    }
    return true;
}

FileState* FileChoice::choose(bool& busy) {
    if (files_.size() == 1) {
        return usable(files_[0], busy) ? files_.data() : nullptr;
    }
    if (done_ >= files_.size()) {
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
    const bool in_turn =
        options_.file_service == FileService::round_robin || options_.file_service == FileService::sequential;
    FileState* chosen = nullptr;
    // A random choice that keeps falling on files that are done would never end: after some tries
    // the next one in turn is taken.
    for (std::size_t tries = 0; chosen == nullptr && tries < 4 * files_.size(); ++tries) {
        std::size_t number = 0;
        if (in_turn || tries >= 2 * files_.size()) {
            number = next_;
            next_ = (next_ + 1) % static_cast<std::uint32_t>(files_.size());
        } else if (options_.file_service == FileService::random) {
            number = static_cast<std::size_t>(random_.below(files_.size()));
        } else {
            number = static_cast<std::size_t>(skewed_.next());
        }
        if (usable(files_[number], busy)) {
            chosen = &files_[number];
        } else if (busy) {
            return nullptr;
        }
    }
    current_ = chosen;
    current_left_ = options_.file_service_count - 1;
    return chosen;
}

void FileChoice::finish(FileState& file) {
    file.done = true;
    ++done_;
}

bool FileChoice::draws() const noexcept {
    return options_.file_service == FileService::random || options_.file_service == FileService::zipf ||
           options_.file_service == FileService::pareto || options_.file_service == FileService::normal;
}

}  // namespace sampleblk::workload
