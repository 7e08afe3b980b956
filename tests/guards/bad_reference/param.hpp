#pragma once

/// \param ranks how many there are
int stages_of(int stages);
