// The C interface between the program and a probe module (libmotley_cuda.so, libmotley_hip.so,
// libmotley_verbs.so): plain C, so that a module built by another compiler is understood.
#pragma once

extern "C" {

struct MotleyProbeSink {
  void* context;
  // `key`: "version", "device" (one call for each device), "detail" (what ran, or why nothing ran).
  void (*say)(void* context, const char* key, const char* value);
};

// Returns 0 when at least one device did real work here, else 1. Never throws.
int motley_probe(const MotleyProbeSink* sink);

}  // extern "C"
