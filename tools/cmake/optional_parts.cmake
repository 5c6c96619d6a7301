# Finds the optional parts, none of which is required: CUDA, HIP, libibverbs, librdmacm, and Ceres, which only
# tools/fit-published needs. Each of the others becomes a shared module beside the program, loaded at run time
# (hw/device/probe_module.hpp). A custom command builds the GPU modules: CMake's HIP language does not know Debian's
# ROCm, and a broken CUDA install must not end the configuration.
set(MOTLEY_CUDA_ARCHITECTURES "80;90" CACHE STRING "compute capabilities that the CUDA module is built for")
set(MOTLEY_HIP_ARCHITECTURES "gfx90a;gfx1030" CACHE STRING "architectures that the HIP module is built for")

find_program(MOTLEY_NVCC nvcc HINTS /usr/local/cuda/bin ENV CUDA_HOME PATH_SUFFIXES bin)
find_program(MOTLEY_HIPCC hipcc HINTS /opt/rocm/bin)
pkg_check_modules(IBVERBS QUIET IMPORTED_TARGET libibverbs>=1.11)
pkg_check_modules(RDMACM QUIET IMPORTED_TARGET librdmacm)
find_package(Ceres QUIET)

set(MOTLEY_HAS_CUDA 0)
set(MOTLEY_HAS_HIP 0)
set(MOTLEY_HAS_VERBS 0)
set(MOTLEY_HAS_RDMACM 0)

# Debian's dnnl-config.cmake demands OpenCL headers that its package only recommends. The host part of
# oneDNN does not need them, so header and library are searched by name.
find_path(MOTLEY_ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp)
find_library(MOTLEY_ONEDNN_LIBRARY dnnl)
if(MOTLEY_ONEDNN_INCLUDE AND MOTLEY_ONEDNN_LIBRARY)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${MOTLEY_ONEDNN_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${MOTLEY_ONEDNN_INCLUDE})
endif()

function(motley_gpu_module name compiler)  # further arguments: flags of the compiler
  set(module ${CMAKE_BINARY_DIR}/libmotley_${name}.so)
  add_custom_command(
    OUTPUT ${module}
    COMMAND ${compiler} ${ARGN} -std=c++17 -O2 -shared -I${CMAKE_SOURCE_DIR}
            -MD -MF ${module}.d -o ${module} ${CMAKE_SOURCE_DIR}/hw/device/cuda/probe.cu
    DEPENDS ${CMAKE_SOURCE_DIR}/hw/device/cuda/probe.cu ${CMAKE_SOURCE_DIR}/hw/device/gpu.hpp
            ${CMAKE_SOURCE_DIR}/hw/device/probe_module.hpp
    COMMENT "Building the ${name} module" VERBATIM)
  add_custom_target(motley_${name} ALL DEPENDS ${module})
endfunction()

if(MOTLEY_NVCC)
  set(MOTLEY_HAS_CUDA 1)
  set(architectures)
  foreach(capability IN LISTS MOTLEY_CUDA_ARCHITECTURES)
    list(APPEND architectures -gencode arch=compute_${capability},code=sm_${capability})
    set(newest ${capability})
  endforeach()
  list(APPEND architectures -gencode arch=compute_${newest},code=compute_${newest})
  motley_gpu_module(cuda ${MOTLEY_NVCC} ${architectures} -cudart static -Werror all-warnings
                    -Xcompiler=-fPIC,-Wall,-Wextra,-Werror)
  get_filename_component(cuda_root ${MOTLEY_NVCC} REALPATH)
  get_filename_component(cuda_root ${cuda_root}/../.. ABSOLUTE)
  set(cuda_library_folders ${cuda_root}/lib64 ${cuda_root}/lib)
endif()
find_library(MOTLEY_CUBLASLT_LIBRARY cublasLt HINTS ${cuda_library_folders})
find_library(MOTLEY_CUDNN_LIBRARY cudnn HINTS ${cuda_library_folders})
find_library(MOTLEY_NCCL_LIBRARY nccl HINTS ${cuda_library_folders})
find_library(MOTLEY_OPENBLAS_LIBRARY openblas)

if(MOTLEY_HIPCC)
  set(MOTLEY_HAS_HIP 1)
  set(architectures)
  foreach(architecture IN LISTS MOTLEY_HIP_ARCHITECTURES)
    list(APPEND architectures --offload-arch=${architecture})
  endforeach()
  motley_gpu_module(hip ${MOTLEY_HIPCC} -x hip ${architectures} -fPIC -Wall -Wextra -Werror)
endif()

function(motley_verbs_module name target version)  # further arguments: its sources
  list(TRANSFORM ARGN PREPEND ${CMAKE_SOURCE_DIR}/hw/transport/verbs/)
  add_library(motley_${name} MODULE ${ARGN})
  target_link_libraries(motley_${name} PRIVATE motley_flags PkgConfig::${target})
  target_compile_definitions(motley_${name} PRIVATE MOTLEY_PART_VERSION="${version}")
  set_target_properties(motley_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()

if(IBVERBS_FOUND)
  set(MOTLEY_HAS_VERBS 1)
  motley_verbs_module(verbs IBVERBS "${IBVERBS_VERSION}" probe.cpp port.cpp)
endif()
if(RDMACM_FOUND)
  set(MOTLEY_HAS_RDMACM 1)
  motley_verbs_module(rdmacm RDMACM "${RDMACM_VERSION}" probe_rdmacm.cpp)
endif()

# Tells hw/device/probe.cpp which modules exist and where the vendors' libraries were found.
set(MOTLEY_PROBE_DEFINITIONS
    MOTLEY_HAS_CUDA=${MOTLEY_HAS_CUDA} MOTLEY_HAS_HIP=${MOTLEY_HAS_HIP}
    MOTLEY_HAS_VERBS=${MOTLEY_HAS_VERBS} MOTLEY_HAS_RDMACM=${MOTLEY_HAS_RDMACM})
foreach(library IN ITEMS CUBLASLT CUDNN NCCL OPENBLAS)
  set(path "${MOTLEY_${library}_LIBRARY}")
  if(NOT path)
    set(path "")
  endif()
  list(APPEND MOTLEY_PROBE_DEFINITIONS MOTLEY_${library}_LIBRARY="${path}")
endforeach()
