// Modules that recipes.ts makes of docs/frameworks.md; recipes.test.ts checks their types.
declare module 'recipe:*';
