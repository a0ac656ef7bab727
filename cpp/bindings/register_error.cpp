// SPDX-License-Identifier: MIT
// Core errors as Python exceptions: a SystemError becomes the OSError subclass that Python picks
// for its errno, the others the classes of sampleblk_lab.errors, with their parts as attributes.
#include <exception>

#include "bindings.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/text.hpp"

namespace sampleblk::bindings {

namespace {

// Imported when first needed, so that the extension can be loaded before the package is whole.
py::object error_class(const char* name) {
    return py::module_::import("sampleblk_lab.errors").attr(name);
}

// A message may quote bytes of a recording; control characters and what is not UTF-8 come out as \xNN, as in a table.
py::str text_of(const std::string& text) {
    return py::str(plain_text(text));
}

// Of a path only the latter: the file is looked for by it.
py::str path_of(const std::string& path) {
    return py::str(printable(path));
}

void raise(const py::object& exception) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

void translate(std::exception_ptr pointer) {
    try {
        if (pointer) {
            std::rethrow_exception(std::move(pointer));
        }
    } catch (const SystemError& error) {
        const py::object os_error = py::reinterpret_borrow<py::object>(PyExc_OSError);
        const py::object path = error.path().empty() ? py::object(py::none()) : py::cast(error.path());
        raise(os_error(error.code(), text_of(error.what()), path));
    } catch (const InputError& error) {
        raise(error_class("InputError")(text_of(error.message()), path_of(error.source()), error.line(),
                                        text_of(error.expected())));
    } catch (const FormatError& error) {
        raise(error_class("FormatError")(path_of(error.path()), error.offset(), text_of(error.expected())));
    } catch (const UnsupportedError& error) {
        raise(error_class("UnsupportedError")(text_of(error.feature()), text_of(error.reason()),
                                              text_of(error.remedy())));
    }
}

// Lets Ctrl-C, and any signal handler written in Python, end a long loop of the core. Runs without
// the GIL held.
void check_python_signals() {
    const py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
        throw py::error_already_set();
    }
}

}  // namespace

void register_error(py::module_& module) {
    (void)module;
    py::register_exception_translator(&translate);
    set_interrupt_check(&check_python_signals);
}

}  // namespace sampleblk::bindings
