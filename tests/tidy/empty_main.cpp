// A program that does nothing: tests/CMakeLists.txt links it with one room at a time, to see what the room needs.
int main() { return 0; }
