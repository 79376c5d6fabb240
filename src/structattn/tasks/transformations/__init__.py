"""Question formation and tense reinflection: tasks whose training data fit a hierarchical and a linear rule."""
