// One GPU source for two vendors: GPU(Malloc) is cudaMalloc or hipMalloc. Names that differ by more
// than the prefix are mapped one by one below. The launch syntax <<<>>> is the same.
#pragma once

#ifdef __HIP__
#include <hip/hip_runtime.h>
#define GPU(name) hip##name
#define GPU_PROPERTIES hipDeviceProp_t
#define GPU_ATTRIBUTE(name) hipDeviceAttribute##name
#define GPU_MULTIPROCESSORS hipDeviceAttributeMultiprocessorCount
#define GPU_MEMORY_BUS_BITS hipDeviceAttributeMemoryBusWidth
#else
#include <cuda_runtime.h>
#define GPU(name) cuda##name
#define GPU_PROPERTIES cudaDeviceProp
#define GPU_ATTRIBUTE(name) cudaDevAttr##name
#define GPU_MULTIPROCESSORS cudaDevAttrMultiProcessorCount
#define GPU_MEMORY_BUS_BITS cudaDevAttrGlobalMemoryBusWidth
#endif
