#pragma once

int answer() { return 42; }
