// sparse_ring._native: binds the tables of kernels to Python. The only file that knows Python, by its limited API.
//
// A pointer's argument is an array that offers __array_struct__ (NumPy's array interface), or None where the kernel
// allows null: taking the address here costs a tenth of reading `array.ctypes.data` in Python, and checks dtype,
// contiguity and writability by the way. Lengths are the caller's to check (sparse_ring/kernels/cpu/kernels.py).
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "kernels.h"

namespace {

// Less work than this takes microseconds, but a GIL given up may take a whole switch interval to come back.
constexpr int64_t TINY_ELEMENTS = 4096;

// The structure behind __array_struct__, as NumPy documents it.
struct ArrayInterface {
    int two;
    int dimensions;
    char kind;
    int itemsize;
    int flags;
    Py_ssize_t* shape;
    Py_ssize_t* strides;
    void* data;
};
constexpr int CONTIGUOUS = 0x1, ALIGNED = 0x100, NATIVE_ORDER = 0x200, WRITEABLE = 0x400;

constexpr const char* NULLABLE = "velocity";  // the one parameter that may be None

PyObject* array_struct_name = nullptr;

template <class T>
struct Element;
template <>
struct Element<float> {
    static constexpr char kind = 'f';
    static constexpr const char* name = "float32";
};
template <>
struct Element<uint32_t> {
    static constexpr char kind = 'u';
    static constexpr const char* name = "uint32";
};
template <>
struct Element<Half> {
    static constexpr char kind = 'u';
    static constexpr const char* name = "uint16";
};
template <>
struct Element<uint8_t> {
    static constexpr char kind = 'u';
    static constexpr const char* name = "uint8";
};

// The parameter's name, read from "kernel(first, second, /)\n--": only errors and None need it.
std::string parameter_name(const char* signature, size_t position) {
    std::string text(signature);
    size_t begin = text.find('(') + 1;
    for (size_t i = 0; i < position; ++i) begin = text.find(", ", begin) + 2;
    return text.substr(begin, text.find_first_of(",)", begin) - begin);
}

template <class T>
bool refuse(const char* signature, size_t position) {
    PyErr_Clear();
    PyErr_Format(PyExc_ValueError, "%s must be a%s 1-D contiguous aligned array of %s in native byte order.",
                 parameter_name(signature, position).c_str(), std::is_const_v<T> ? "" : " writable",
                 Element<std::remove_const_t<T>>::name);
    return false;
}

template <class T>
bool convert(PyObject* object, T*& result, const char* signature, size_t position) {
    using Plain = std::remove_const_t<T>;
    if (object == Py_None && parameter_name(signature, position) == NULLABLE) {
        result = nullptr;
        return true;
    }
    PyObject* capsule = PyObject_GetAttr(object, array_struct_name);
    if (capsule == nullptr) return refuse<T>(signature, position);
    const auto* array = static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule, nullptr));
    constexpr int needed = CONTIGUOUS | NATIVE_ORDER | (alignof(Plain) > 1 ? ALIGNED : 0) |
                           (std::is_const_v<T> ? 0 : WRITEABLE);
    const bool fits = array != nullptr && array->two == 2 && array->dimensions == 1 &&
                      array->kind == Element<Plain>::kind && array->itemsize == static_cast<int>(sizeof(Plain)) &&
                      (array->flags & needed) == needed;
    if (fits) result = static_cast<T*>(array->data);
    Py_DECREF(capsule);  // the caller's reference to the array keeps its data
    return fits || refuse<T>(signature, position);
}

bool convert(PyObject* object, int64_t& result, const char*, size_t) {
    result = PyLong_AsLongLong(object);
    return result != -1 || !PyErr_Occurred();
}

bool convert(PyObject* object, float& result, const char*, size_t) {
    const double value = PyFloat_AsDouble(object);
    result = static_cast<float>(value);
    return value != -1.0 || !PyErr_Occurred();
}

bool convert(PyObject* object, bool& result, const char*, size_t) {
    const int value = PyObject_IsTrue(object);
    result = value == 1;
    return value != -1;
}

PyObject* to_python(bool value) { return PyBool_FromLong(value); }
PyObject* to_python(int64_t value) { return PyLong_FromLongLong(value); }
PyObject* to_python(double value) { return PyFloat_FromDouble(value); }

using TableOf = const Kernels& (*)();

template <TableOf Table, auto Member>
struct Binding;

template <TableOf Table, class Result, class... Arguments, Result (*Kernels::*Member)(int64_t, Arguments...)>
struct Binding<Table, Member> {
    using Values = std::tuple<int64_t, Arguments...>;

    // The method's own docstring is its signature, so that text and binding cannot drift apart.
    static inline const char* signature = nullptr;

    static PyObject* call(PyObject*, PyObject* const* objects, Py_ssize_t count) {
        return call(objects, count, std::make_index_sequence<1 + sizeof...(Arguments)>());
    }

    template <size_t... I>
    static PyObject* call(PyObject* const* objects, Py_ssize_t count, std::index_sequence<I...>) {
        if (count != static_cast<Py_ssize_t>(sizeof...(I))) {
            PyErr_Format(PyExc_TypeError, "%.60s takes %zu arguments, not %zd", signature, sizeof...(I), count);
            return nullptr;
        }
        Values values{};
        if (!(convert(objects[I], std::get<I>(values), signature, I) && ...)) return nullptr;
        PyThreadState* released = std::get<0>(values) > TINY_ELEMENTS ? PyEval_SaveThread() : nullptr;
        if constexpr (std::is_void_v<Result>) {
            (Table().*Member)(std::get<I>(values)...);
            if (released != nullptr) PyEval_RestoreThread(released);
            Py_RETURN_NONE;
        } else {
            const Result result = (Table().*Member)(std::get<I>(values)...);
            if (released != nullptr) PyEval_RestoreThread(released);
            return to_python(result);
        }
    }
};

template <TableOf Table, auto Member>
PyMethodDef method(const char* name, const char* signature) {
    using Bound = Binding<Table, Member>;
    Bound::signature = signature;
    PyObject* (*call)(PyObject*, PyObject* const*, Py_ssize_t) = &Bound::call;
    return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL, signature};
}

#define METHOD(NAME, PARAMETERS) method<Table, &Kernels::NAME>(#NAME, #NAME "(" PARAMETERS ", /)\n--\n\n")

template <TableOf Table>
PyObject* table_module(const char* name) {
    static PyMethodDef methods[] = {
        METHOD(all_finite, "n, x"),
        METHOD(accumulate, "n, gradient, velocity, residual, momentum, nesterov"),
        METHOD(accumulate_select,
               "n, gradient, velocity, residual, momentum, nesterov, threshold, capacity, indices, values"),
        METHOD(select, "n, x, threshold, capacity, indices, values"),
        METHOD(select_chunks, "n, x, keep, indices, values"),
        METHOD(kth_magnitude, "n, x, k, scratch"),
        METHOD(update_residual, "n, indices, values, decoded, numel, residual, velocity"),
        METHOD(scatter_add, "n, indices, values, scale, numel, out"),
        METHOD(add_scaled, "n, values, scale, out"),
        METHOD(sum_magnitudes, "n, values"),
        METHOD(golomb_encode, "n, indices, numel, size, out"),
        METHOD(golomb_decode, "n, payload, size, numel, indices"),
        METHOD(interpolative_encode, "n, indices, numel, size, out"),
        METHOD(interpolative_decode, "n, payload, size, numel, indices"),
        METHOD(bitpack_encode, "n, indices, numel, size, out"),
        METHOD(bitpack_decode, "n, payload, size, numel, indices"),
        METHOD(bitmap_encode, "n, indices, numel, size, out"),
        METHOD(bitmap_decode, "n, payload, size, numel, indices"),
        METHOD(elias_fano_encode, "n, indices, numel, size, out"),
        METHOD(elias_fano_decode, "n, payload, size, numel, indices"),
        METHOD(block16_encode, "n, indices, numel, size, out"),
        METHOD(block16_decode, "n, payload, size, numel, indices"),
        METHOD(golomb_size, "n, indices, numel"),
        METHOD(interpolative_size, "n, indices, numel"),
        METHOD(bitpack_size, "n, indices"),
        METHOD(block16_size, "n, indices"),
        METHOD(float16_encode, "n, values, out, decoded"),
        METHOD(float16_decode, "n, payload, scale, values"),
        METHOD(sign_encode, "n, values, out, decoded"),
        METHOD(sign_decode, "n, payload, scale, values"),
        METHOD(bfloat16_encode, "n, values, out, decoded"),
        METHOD(bfloat16_decode, "n, payload, values"),
        METHOD(levels_encode, "n, values, bits, out, decoded"),
        METHOD(levels_decode, "n, payload, bits, scale, values"),
        METHOD(quantize_encode, "n, values, scheme, scale, key, out, decoded"),
        METHOD(quantize_decode, "n, payload, scheme, scale, values"),
        METHOD(float32_to_bfloat16, "n, x, out"),
        METHOD(bfloat16_to_float32, "n, x, out"),
        METHOD(float32_to_float16, "n, x, out"),
        METHOD(float16_to_float32, "n, x, out"),
        METHOD(skinny_right, "n, matrix, rows, columns, rank, factor, out"),
        METHOD(skinny_left, "n, matrix, rows, columns, rank, factor, out"),
        METHOD(skinny_outer, "n, left, right, rows, columns, rank, residual, out"),
        METHOD(orthonormalise, "n, factor, rows, rank"),
        {nullptr, nullptr, 0, nullptr},
    };
    static PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, name, nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr,
    };
    return PyModule_Create(&definition);
}

PyObject* supported(PyObject*, PyObject*) {
    if (avx512_supported()) return Py_BuildValue("(sss)", "scalar", "avx2", "avx512");
    return avx2_supported() ? Py_BuildValue("(ss)", "scalar", "avx2") : Py_BuildValue("(s)", "scalar");
}

bool add(PyObject* module, const char* name, PyObject* member) {
    if (member != nullptr && PyModule_AddObject(module, name, member) == 0) return true;
    Py_XDECREF(member);
    return false;
}

PyMethodDef functions[] = {
    {"supported", supported, METH_NOARGS,
     "supported()\n--\n\nNames of the tables that this processor can run, the best one last."},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "sparse_ring._native", "Native kernels; see native/kernels.h.", -1, functions,
    nullptr, nullptr, nullptr, nullptr,
};

}  // namespace

PyMODINIT_FUNC PyInit__native() {
    array_struct_name = PyUnicode_InternFromString("__array_struct__");
    PyObject* module = PyModule_Create(&definition);
    if (module == nullptr || array_struct_name == nullptr) return nullptr;
    if (add(module, "scalar", table_module<scalar_kernels>("sparse_ring._native.scalar")) &&
        add(module, "avx2", table_module<avx2_kernels>("sparse_ring._native.avx2")) &&
        add(module, "avx512", table_module<avx512_kernels>("sparse_ring._native.avx512"))) {
        return module;
    }
    Py_DECREF(module);
    return nullptr;
}
