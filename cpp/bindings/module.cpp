// SPDX-License-Identifier: MIT
#include "bindings.hpp"

PYBIND11_MODULE(_core, module) {
    using namespace sampleblk::bindings;
    module.doc() = "The C++ core of sampleblk_lab; import the package instead.";
    register_error(module);
    register_table(module);
    register_device(module);
    register_crash(module);
    register_trace(module);
    register_trace_views(module);
    register_tracefs(module);
    register_inspect(module);
    register_profile(module);
    register_sampler(module);
    register_units(module);
    register_files(module);
    register_workload(module);
}
