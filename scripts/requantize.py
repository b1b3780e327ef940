#!/usr/bin/env python3
"""Writes the same model with its weights in another type, for tests and benchmarks.

usage: requantize.py IN.gguf OUT.gguf TYPE

TYPE is one of f32, bf16, f16, q8_0, q5_0, q5_1, q4_0, q4_1. IN may hold any of these types. All
metadata is kept; general.file_type follows TYPE. Vectors (norms, biases) become f32 in any case.
f32 holds exactly the numbers that IN stands for. Needs the Python packages gguf and numpy: where
they are missing, a virtual environment with them is made in the cache folder
(~/.cache/headroom/venv; HEADROOM_CACHE names another folder).
"""
import os
import pathlib
import subprocess
import sys

PACKAGES = ["gguf==0.19.0", "numpy"]

# Type name -> (tensor type, file type) by their names in the gguf package.
TYPES = {
    "f32": ("F32", "ALL_F32"),
    "bf16": ("BF16", "MOSTLY_BF16"),
    "f16": ("F16", "MOSTLY_F16"),
    "q8_0": ("Q8_0", "MOSTLY_Q8_0"),
    "q5_0": ("Q5_0", "MOSTLY_Q5_0"),
    "q5_1": ("Q5_1", "MOSTLY_Q5_1"),
    "q4_0": ("Q4_0", "MOSTLY_Q4_0"),
    "q4_1": ("Q4_1", "MOSTLY_Q4_1"),
}


def run_again_with_packages():
    """Replaces this process by one in a virtual environment that has the packages."""
    cache = pathlib.Path(os.environ.get("HEADROOM_CACHE", pathlib.Path.home() / ".cache/headroom"))
    folder = cache / "venv"
    python = folder / "bin/python"
    if pathlib.Path(sys.prefix) == folder:
        sys.exit(f"{folder}: holds no gguf package; remove the folder and run this again")
    installed = [python, "-c", "import gguf, numpy"]
    if not python.exists() or subprocess.run(installed, capture_output=True, check=False).returncode:
        print(f"making {folder} with {', '.join(PACKAGES)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *PACKAGES], check=True)
    os.execv(python, [str(python), *sys.argv])  # the script that imports this, maybe


try:
    import gguf
    import numpy
except ImportError:
    run_again_with_packages()


def field_value(field):
    """The value of a metadata field as GGUFWriter takes it; strings stay bytes."""
    kind = field.types[-1]
    if field.types[0] == gguf.GGUFValueType.ARRAY:
        if len(field.types) != 2 or not field.data:
            raise ValueError(f"metadata {field.name}: empty and nested arrays are not supported")
        if kind == gguf.GGUFValueType.STRING:
            return [field.parts[index].tobytes() for index in field.data]
        return [value for index in field.data for value in field.parts[index].tolist()]
    part = field.parts[field.data[0]]
    return part.tobytes() if kind == gguf.GGUFValueType.STRING else part.tolist()[0]


def copy_metadata(reader, writer, file_type):
    for field in reader.fields.values():
        # GGUF.* are the header's own numbers; the writer has set the architecture already.
        if field.name.startswith("GGUF.") or field.name == gguf.Keys.General.ARCHITECTURE:
            continue
        if field.name == gguf.Keys.General.FILE_TYPE:
            continue
        is_array = field.types[0] == gguf.GGUFValueType.ARRAY
        sub_type = field.types[-1] if is_array else None
        writer.add_key_value(field.name, field_value(field), field.types[0], sub_type)
    writer.data_alignment = reader.alignment
    writer.add_file_type(file_type)


def target_type(tensor, wanted):
    """Vectors are few and matter: they stay f32."""
    return gguf.GGMLQuantizationType.F32 if len(tensor.shape) == 1 else wanted


def add_tensor_infos(reader, writer, wanted):
    for tensor in reader.tensors:
        kind = target_type(tensor, wanted)
        shape = [int(size) for size in reversed(tensor.shape)]
        try:
            byte_shape = gguf.quants.quant_shape_to_byte_shape(shape, kind)
        except ValueError as error:
            raise ValueError(f"tensor {tensor.name}: {error}") from error
        num_bytes = int(numpy.prod(byte_shape, dtype=numpy.int64))
        writer.add_tensor_info(tensor.name, byte_shape, numpy.dtype(numpy.uint8), num_bytes, kind)


def write_tensors(reader, writer, wanted):
    for tensor in reader.tensors:
        kind = target_type(tensor, wanted)
        data = tensor.data
        if kind != tensor.tensor_type:
            # The shape of what gguf gives back is the tensor's own, the row length last.
            data = gguf.quants.quantize(gguf.quants.dequantize(data, tensor.tensor_type), kind)
        writer.write_tensor_data(numpy.ascontiguousarray(data))


def requantize(source, target, type_name):
    tensor_type, file_type = TYPES[type_name]
    wanted = gguf.GGMLQuantizationType[tensor_type]
    readable = {gguf.GGMLQuantizationType[name] for name, _ in TYPES.values()}
    reader = gguf.GGUFReader(source)
    for tensor in reader.tensors:
        if tensor.tensor_type not in readable:
            raise ValueError(f"tensor {tensor.name}: type {tensor.tensor_type.name} is not one of "
                             f"{', '.join(TYPES)}")
    architecture = reader.fields.get(gguf.Keys.General.ARCHITECTURE)
    if architecture is None:
        raise ValueError(f"metadata {gguf.Keys.General.ARCHITECTURE} is missing")
    # Written beside the target and renamed, so that a half-written model is never found there.
    partial = target.with_name(target.name + ".partial")
    writer = gguf.GGUFWriter(partial, field_value(architecture).decode())
    try:
        copy_metadata(reader, writer, gguf.LlamaFileType[file_type])
        add_tensor_infos(reader, writer, wanted)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        write_tensors(reader, writer, wanted)
        writer.close()
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return len(reader.tensors)


def main():
    if len(sys.argv) != 4 or sys.argv[3] not in TYPES:
        sys.exit(__doc__.strip())
    source, target, type_name = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    if target.exists() and source.exists() and target.samefile(source):
        sys.exit(f"{target}: is the input file")
    try:
        num_tensors = requantize(source, target, type_name)
    except (OSError, ValueError) as error:
        sys.exit(f"{source}: {error}")
    print(f"{target}: {num_tensors} tensors, {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
