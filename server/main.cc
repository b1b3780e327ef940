#include "server/cli/cli.h"

int main(int argc, char** argv) { return headroom::server::RunCli(argc, argv); }
