// The one slow unit of the tests: Catch2's main.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
